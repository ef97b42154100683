"""Findings: the results of checks."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

Verdict = Literal["ok", "warning", "trouble"]

_NOTICEABLE_SECONDS = 2.0
_HARMFUL_SECONDS = 30.0


class Finding(Struct, frozen=True, kw_only=True):
    """The result of one check, with the remedy of a problem."""

    area: str
    check: str
    verdict: Verdict
    found: str
    remedy: str = ""


class Area:
    """Makes the findings of one area."""

    def __init__(self, name: str) -> None:
        self.name = name

    def ok(self, check: str, found: str) -> Finding:
        """Report that a check passed."""
        return Finding(area=self.name, check=check, verdict="ok", found=found)

    def warning(self, check: str, found: str, remedy: str) -> Finding:
        """Report a problem that does not stop work yet."""
        return Finding(area=self.name, check=check, verdict="warning", found=found, remedy=remedy)

    def trouble(self, check: str, found: str, remedy: str) -> Finding:
        """Report a problem that stops work, or soon will."""
        return Finding(area=self.name, check=check, verdict="trouble", found=found, remedy=remedy)

    def clock(self, theirs: datetime, ours: datetime, why: str) -> Finding:
        """Compare another clock with that of this machine; `why` says why it matters."""
        seconds = (theirs - ours).total_seconds()
        if abs(seconds) < _NOTICEABLE_SECONDS:
            return self.ok("clock", f"it agrees with this machine's ({seconds:+.2f} s)")
        relation = "ahead of" if seconds > 0 else "behind"
        report = self.warning if abs(seconds) < _HARMFUL_SECONDS else self.trouble
        return report(
            "clock",
            f"it is {abs(seconds):.0f} s {relation} this machine's",
            f"synchronize both by NTP: {why}",
        )

    def fill(self, check: str, found: str, part: float, remedy: str) -> Finding:
        """Report how full something is."""
        if part <= 0.7:
            return self.ok(check, found)
        return (self.trouble if part > 0.9 else self.warning)(check, found, remedy)
