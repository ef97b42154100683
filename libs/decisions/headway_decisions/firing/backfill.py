"""Which occurrences of a past range are queued after all."""

from datetime import datetime, timedelta

from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Spaced
from headway_decisions.timing.timing import Timing

MOST_BACKFILLED = 1000
_INSTANT = timedelta(microseconds=1)


def range_problem(kept: Timing, since: datetime, until: datetime, *, now: datetime) -> str | None:
    """Say why a range cannot be backfilled, with the remedy; `None` if it can."""
    if isinstance(kept.cadence, Manual | Spaced):
        return "it has no times of its own to make good: trigger it without a range"
    if until < since:
        return f"the range ends at {until.isoformat()}, before it begins: swap the two times"
    if until > now:
        return f"the range ends at {until.isoformat()}, which is not past: end it by now"
    return None


def range_occurrences(kept: Timing, since: datetime, until: datetime) -> list[datetime]:
    """The due times from `since` to `until`, both included, that no exclusion covers.

    At most one more than may be backfilled, which tells that there are too many.
    """
    found: list[datetime] = []
    due_at = timing.next_allowed(kept, since - _INSTANT)
    while due_at is not None and due_at <= until and len(found) <= MOST_BACKFILLED:
        found.append(due_at)
        due_at = timing.next_allowed(kept, due_at)
    return found
