"""Compare the fire times of manifests before and after a change.

Each side is the next fire times up to the horizon, at most `MOST_COMPARED` of them; the change is
the difference of the two sets. Where a side has more times, the comparison ends with the last time
that both sides cover, and `compared_until` says so.
"""

from collections.abc import Hashable, Sequence
from datetime import datetime, timedelta

from headway_contract.definitions import FireChange, FiresLeftOut
from headway_contract.manifests import FireTime
from headway_decisions.firing import jitter
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Once
from headway_decisions.timing.timing import Timing
from msgspec import Struct, structs

from headway_scheduler.fire.preview import fire_time

# Times of one side that are compared, and times that are computed for one answer.
MOST_COMPARED = 20_000
MOST_COMPUTED = 200_000
# Bounds of one answer, so that it fits into one message.
MOST_MANIFESTS = 1000
MOST_LISTED = 2000
MOST_LISTED_OF_A_MANIFEST = 100

_INSTANT = timedelta(microseconds=1)


class Firing(Struct, frozen=True, kw_only=True):
    """How a manifest fires; `first` is its next due time."""

    timing: Timing
    jitter_seconds: float
    first: datetime | None


class Move(Struct, frozen=True, kw_only=True):
    """How a manifest fires before and after; `None` where it does not fire at all."""

    external_id: str
    now: datetime
    before: Firing | None = None
    after: Firing | None = None


class _Difference(Struct, frozen=True, kw_only=True):
    """Due times that vanish and appear."""

    vanish: list[datetime]
    appear: list[datetime]
    unchanged: int
    compared_until: datetime | None


def changes(
    moves: Sequence[Move], horizon: datetime
) -> tuple[list[FireChange], FiresLeftOut | None]:
    """Return the fire times that change up to the horizon, and what the answer leaves out."""
    found, not_compared, computed = [], 0, 0
    # Equal moves, as a batch has them, are compared once.
    known: dict[Hashable, _Difference] = {}
    for move in moves:
        firings = [firing for firing in (move.before, move.after) if firing is not None]
        has_jitter = any(firing.jitter_seconds for firing in firings)
        key = (move.before, move.after, move.now, move.external_id if has_jitter else None)
        if key not in known:
            if computed >= MOST_COMPUTED:
                not_compared += 1
                continue
            before, after = (_times(move, side, horizon) for side in (move.before, move.after))
            computed += len(before) + len(after)
            known[key] = _difference(move, before, after)
        difference = known[key]
        if difference.vanish or difference.appear or difference.compared_until is not None:
            found.append((move, difference))
    listed, unlisted = found[:MOST_MANIFESTS], found[MOST_MANIFESTS:]
    left_out = FiresLeftOut(
        changing=len(unlisted),
        appearing=sum(len(difference.appear) for _, difference in unlisted),
        vanishing=sum(len(difference.vanish) for _, difference in unlisted),
        not_compared=not_compared,
    )
    most = min(MOST_LISTED_OF_A_MANIFEST, max(1, MOST_LISTED // max(1, len(listed))))
    return (
        [_fire_change(move, difference, most) for move, difference in listed],
        None if left_out == FiresLeftOut() else left_out,
    )


def _times(move: Move, firing: Firing | None, horizon: datetime) -> list[datetime]:
    """Return the next due times up to the horizon, one more than are compared if there are more."""
    found: list[datetime] = []
    if firing is None or firing.first is None:
        return found
    # The first due time can still fire if jitter delays it, or if it is a one-shot.
    is_once = isinstance(firing.timing.cadence, Once)
    is_ahead = is_once or _fires_at(move, firing, firing.first) > move.now
    start = firing.first - _INSTANT if is_ahead else move.now
    due_at = timing.next_allowed(firing.timing, start)
    while due_at is not None and due_at <= horizon and len(found) <= MOST_COMPARED:
        found.append(due_at)
        due_at = timing.next_allowed(firing.timing, due_at)
    return found


def _fires_at(move: Move, firing: Firing | None, due_at: datetime) -> datetime:
    if firing is None:
        return due_at
    return jitter.fire_at(firing.timing, move.external_id, due_at, firing.jitter_seconds)


def _difference(move: Move, before: list[datetime], after: list[datetime]) -> _Difference:
    ends = [side[MOST_COMPARED - 1] for side in (before, after) if len(side) > MOST_COMPARED]
    end = min(ends, default=None)
    old = {due: _fires_at(move, move.before, due) for due in before if end is None or due <= end}
    new = {due: _fires_at(move, move.after, due) for due in after if end is None or due <= end}
    same = old.items() & new.items()
    return _Difference(
        vanish=[due for due, fires_at in old.items() if (due, fires_at) not in same],
        appear=[due for due, fires_at in new.items() if (due, fires_at) not in same],
        unchanged=len(same),
        compared_until=end,
    )


def _fire_change(move: Move, difference: _Difference, most: int) -> FireChange:
    """List the first of the times that change, in the order of time."""
    both = sorted([(due, 0) for due in difference.vanish] + [(due, 1) for due in difference.appear])
    listed = both[:most]
    firing = move.after or move.before
    return FireChange(
        manifest=move.external_id,
        zone=firing.timing.zone if firing else "UTC",
        vanish=[_vanishing(move, due) for due, appears in listed if not appears],
        appear=[_fire_time(move, move.after, due) for due, appears in listed if appears],
        unchanged=difference.unchanged,
        appearing=len(difference.appear),
        vanishing=len(difference.vanish),
        compared_until=difference.compared_until,
    )


def _fire_time(move: Move, firing: Firing | None, due_at: datetime) -> FireTime:
    assert firing is not None  # noqa: S101 - a side without a firing has no times
    return fire_time(move.external_id, firing.timing, due_at, firing.jitter_seconds)


def _vanishing(move: Move, due_at: datetime) -> FireTime:
    """Return a time that vanishes, with the new exclusion that removes it, if one does."""
    vanishing = _fire_time(move, move.before, due_at)
    if move.after is None or timing.next_due(move.after.timing, due_at - _INSTANT) != due_at:
        return vanishing
    return structs.replace(vanishing, excluded=timing.excluded_by(move.after.timing, due_at))
