"""Occurrences of a past range that a backfill queues."""

from datetime import datetime, timedelta

from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Spaced
from headway_decisions.timing.timing import Timing

MOST_BACKFILLED = 1000
_INSTANT = timedelta(microseconds=1)


def range_problem(kept: Timing, since: datetime, until: datetime, *, now: datetime) -> str | None:
    """Return why a range cannot be backfilled, with the remedy; `None` if it can."""
    if isinstance(kept.cadence, Manual | Spaced):
        return "it has no scheduled times: trigger it without a range"
    if until < since:
        return f"the range ends at {until.isoformat()}, before it begins: swap the two times"
    if until > now:
        return f"the range ends at {until.isoformat()}, in the future: end it now or earlier"
    return None


def range_occurrences(kept: Timing, since: datetime, until: datetime) -> list[datetime]:
    """Return the allowed times in [since, until], at most one more than may be backfilled."""
    found: list[datetime] = []
    due_at = timing.next_allowed(kept, since - _INSTANT)
    while due_at is not None and due_at <= until and len(found) <= MOST_BACKFILLED:
        found.append(due_at)
        due_at = timing.next_allowed(kept, due_at)
    return found
