"""Findings: the results of checks."""

from functools import partialmethod
from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warning", "trouble"]


class Finding(Struct, frozen=True):
    """The result of one check, with the remedy of a problem."""

    area: str
    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


class Area(list[Finding]):
    """The findings of one area."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def add(self, verdict: Verdict, check: str, found: str, remedy: str = "") -> None:
        """Add a finding: trouble stops work, or soon will; a warning does not yet."""
        remedy = "" if verdict == "ok" else remedy
        self.append(Finding(self._name, check, verdict, found, remedy))

    ok = partialmethod(add, "ok")
    warning = partialmethod(add, "warning")
    trouble = partialmethod(add, "trouble")

    def otherwise_ok(self, check: str, found: str) -> None:
        """Add that a check passed, if it has no finding yet."""
        if all(finding.check != check for finding in self):
            self.ok(check, found)
