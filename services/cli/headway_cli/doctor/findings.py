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


class Area(Struct, frozen=True):
    """Makes the findings of one area."""

    name: str

    def ok(self, check: str, found: str) -> Finding:
        """Report that a check passed."""
        return Finding(self.name, check, "ok", found)

    def warning(self, check: str, found: str, remedy: str) -> Finding:
        """Report a problem that does not stop work yet."""
        return Finding(self.name, check, "warning", found, remedy)

    def trouble(self, check: str, found: str, remedy: str) -> Finding:
        """Report a problem that stops work, or soon will."""
        return Finding(self.name, check, "trouble", found, remedy)

    def clock(self, theirs: datetime, ours: datetime, why: str) -> Finding:
        """Compare another clock with that of this machine; `why` says why it matters."""
        seconds = (theirs - ours).total_seconds()
        if abs(seconds) < 2:
            return self.ok("clock", f"it agrees with this machine's ({seconds:+.2f} s)")
        relation = "ahead of" if seconds > 0 else "behind"
        found = f"it is {abs(seconds):.0f} s {relation} this machine's"
        report = self.warning if abs(seconds) < 30 else self.trouble
        return report("clock", found, f"synchronize both by NTP: {why}")

    def fill(self, check: str, found: str, part: float, remedy: str) -> Finding:
        """Report how full something is."""
        if part <= 0.7:
            return self.ok(check, found)
        return (self.trouble if part > 0.9 else self.warning)(check, found, remedy)
