"""Findings: the results of checks."""

from datetime import datetime
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

    def clock(self, theirs: datetime, ours: datetime, why: str) -> None:
        """Compare another clock with that of this machine; `why` says why it matters."""
        seconds = (theirs - ours).total_seconds()
        if abs(seconds) < 2:
            self.ok("clock", f"it agrees with this machine's ({seconds:+.2f} s)")
            return
        relation = "ahead of" if seconds > 0 else "behind"
        found = f"it is {abs(seconds):.0f} s {relation} this machine's"
        verdict: Verdict = "warning" if abs(seconds) < 30 else "trouble"
        self.add(verdict, "clock", found, f"synchronize both by NTP: {why}")
