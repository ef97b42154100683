"""Whether two clocks agree."""

from datetime import datetime

from headway_cli.doctor.findings import Area, Finding

_NOTICEABLE_SECONDS = 2.0
_HARMFUL_SECONDS = 30.0


def judge_clock(area: Area, theirs: datetime, ours: datetime, why: str) -> Finding:
    """How far another clock is from that of this machine; `why` says what it matters for."""
    seconds = (theirs - ours).total_seconds()
    if abs(seconds) < _NOTICEABLE_SECONDS:
        return area.ok("clock", f"it agrees with this machine's ({seconds:+.2f} s)")
    told = f"it is {abs(seconds):.0f} s {'ahead of' if seconds > 0 else 'behind'} this machine's"
    remedy = f"let both keep time by NTP: {why}"
    if abs(seconds) < _HARMFUL_SECONDS:
        return area.warning("clock", told, remedy)
    return area.trouble("clock", told, remedy)
