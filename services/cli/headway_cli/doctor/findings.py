"""Findings: the results of checks."""

from datetime import datetime
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

    def ok(self, check: str, found: str) -> None:
        """Add a check that passed."""
        self.append(Finding(self._name, check, "ok", found))

    def warning(self, check: str, found: str, remedy: str) -> None:
        """Add a problem that does not stop work yet."""
        self.append(Finding(self._name, check, "warning", found, remedy))

    def trouble(self, check: str, found: str, remedy: str) -> None:
        """Add a problem that stops work, or soon will."""
        self.append(Finding(self._name, check, "trouble", found, remedy))

    def clock(self, theirs: datetime, ours: datetime, why: str) -> None:
        """Compare another clock with that of this machine; `why` says why it matters."""
        seconds = (theirs - ours).total_seconds()
        if abs(seconds) < 2:
            self.ok("clock", f"it agrees with this machine's ({seconds:+.2f} s)")
            return
        relation = "ahead of" if seconds > 0 else "behind"
        add = self.warning if abs(seconds) < 30 else self.trouble
        found = f"it is {abs(seconds):.0f} s {relation} this machine's"
        add("clock", found, f"synchronize both by NTP: {why}")
