"""Which fire times come, go and move when manifests change: pure, and cheap however dense they are.

All manifests are compared; equal changes, as a batch has them by the thousand, only once. What an
answer has no room for is counted.
"""

from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta
from math import floor
from typing import NamedTuple

from headway_contract.scheduling import FireChange, FireMove, FiresLeftOut, FireTime
from headway_decisions.firing import jitter
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Once
from headway_decisions.timing.timing import Timing
from msgspec import Struct, structs

from headway_scheduler.declare.time_differences import Comparer, Differences, Side
from headway_scheduler.explain.preview import fire_time

# How much one answer tells, so that it fits into one message: times listed for a manifest,
# times listed in all, and manifests.
MOST_OF_A_MANIFEST = 200
MOST_LISTED = 2000
MOST_MANIFESTS = 1000
# How much is looked at for one manifest and for all of them. A step is about ten microseconds.
_MOST_STEPS_OF_ONE = 300_000
_MOST_STEPS = 600_000

_INSTANT = timedelta(microseconds=1)


class Firing(Struct, frozen=True, kw_only=True):
    """How a manifest fires; `first` is its next due time."""

    timing: Timing
    jitter_seconds: float
    first: datetime | None


class Move(Struct, frozen=True, kw_only=True):
    """How a manifest fires before and after; none where it does not fire at all."""

    external_id: str
    now: datetime
    before: Firing | None = None
    after: Firing | None = None


class Told(NamedTuple):
    """The changes there is room for, and what was left out."""

    changes: list[FireChange]
    left_out: FiresLeftOut | None


def changes(moves: Sequence[Move], horizon: datetime) -> Told:
    """The fire times that change up to the horizon; manifests without any are left out."""
    found, not_compared = _compared(moves, floor(horizon.timestamp()))
    listed, unlisted = found[:MOST_MANIFESTS], found[MOST_MANIFESTS:]
    share = _share([len(one.vanish) + len(one.appear) for _, one in listed])
    left_out = FiresLeftOut(
        changing=len(unlisted),
        appearing=sum(one.appearing for _, one in unlisted),
        vanishing=sum(one.vanishing for _, one in unlisted),
        not_compared=not_compared,
    )
    told = [_change(move, one, share) for move, one in listed]
    return Told(told, None if left_out == FiresLeftOut() else left_out)


def _compared(moves: Sequence[Move], until: int) -> tuple[list[tuple[Move, Differences]], int]:
    """What differs, for those for which something does, and how many could not be compared."""
    comparer, known = Comparer(), dict[Hashable, Differences]()
    found, not_compared = [], 0
    for move in moves:
        before, after = _side(move, move.before), _side(move, move.after)
        stays = _stays(move)
        key = (before, after, move.external_id if stays else None)
        if key not in known:
            patience = min(_MOST_STEPS_OF_ONE, _MOST_STEPS - comparer.steps)
            if patience <= 0:
                not_compared += 1
                continue
            known[key] = comparer.differences(
                before, after, until, room=MOST_OF_A_MANIFEST, patience=patience, stays=stays
            )
        one = known[key]
        if one.appearing or one.vanishing or one.compared_until is not None:
            found.append((move, one))
    return found, not_compared


def _share(wanted: Sequence[int]) -> int:
    """How many times each may list, so that all have some and the few that have many get more."""
    share, room, left = MOST_OF_A_MANIFEST, MOST_LISTED, len(wanted)
    for count in sorted(wanted):
        share = max(1, room // left)
        if count > share:
            return share
        room, left = room - count, left - 1
    return MOST_OF_A_MANIFEST


def _change(move: Move, found: Differences, share: int) -> FireChange:
    listed = sorted([(one, 0) for one in found.vanish] + [(one, 1) for one in found.appear])[:share]
    vanish = {one for one, comes in listed if not comes}
    appear = {one for one, comes in listed if comes}
    firing = move.after or move.before
    return FireChange(
        manifest=move.external_id,
        zone=firing.timing.zone if firing else "UTC",
        appear=[_told(move, move.after, _instant(one)) for one in sorted(appear)],
        vanish=[_vanishing(move, _instant(one)) for one in sorted(vanish)],
        unchanged=found.unchanged,
        truncated=found.compared_until is not None
        or len(listed) < found.vanishing + found.appearing,
        appearing=found.appearing,
        vanishing=found.vanishing,
        moving=found.moving,
        moves=[
            FireMove(vanish=_instant(gone), appear=_instant(come))
            for gone, come in found.moves
            if gone in vanish and come in appear
        ],
        compared_until=None if found.compared_until is None else _instant(found.compared_until),
    )


def _side(move: Move, firing: Firing | None) -> Side | None:
    """From where on the times of a firing count."""
    if firing is None or firing.first is None:
        return None
    start = firing.first - _INSTANT if _still_fires(move, firing, firing.first) else move.now
    return Side(firing.timing, floor(start.timestamp()))


def _stays(move: Move) -> Callable[[int], bool] | None:
    """Whether a due time is let go at the same time, to be asked only if that may differ."""
    before, after = move.before, move.after
    if before is None or after is None or _jitters_alike(before, after):
        return None
    firings = (before, after)

    def stays(due_at: int) -> bool:
        old, new = (
            jitter.fire_at(one.timing, move.external_id, _instant(due_at), one.jitter_seconds)
            for one in firings
        )
        return old == new

    return stays


def _jitters_alike(before: Firing, after: Firing) -> bool:
    """Whether all due times that both have are let go alike: a jitter keeps within the step."""
    if before.jitter_seconds != after.jitter_seconds:
        return False
    steps = [structs.replace(one.timing, exclusions=()) for one in (before, after)]
    return not before.jitter_seconds or steps[0] == steps[1]


def _instant(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def _still_fires(move: Move, firing: Firing, first: datetime) -> bool:
    """Whether a first due time lies ahead: its jitter may hold it back, a one-shot may be late."""
    late = isinstance(firing.timing.cadence, Once)
    return (
        late
        or jitter.fire_at(firing.timing, move.external_id, first, firing.jitter_seconds) > move.now
    )


def _told(move: Move, firing: Firing | None, due_at: datetime) -> FireTime:
    assert firing is not None  # noqa: S101 - it has a time
    return fire_time(move.external_id, firing.timing, due_at, firing.jitter_seconds)


def _vanishing(move: Move, due_at: datetime) -> FireTime:
    """A time that goes; if a new exclusion takes it away, that is told."""
    told = _told(move, move.before, due_at)
    if move.after is None or timing.next_due(move.after.timing, due_at - _INSTANT) != due_at:
        return told
    return structs.replace(told, excluded=timing.excluded_by(move.after.timing, due_at))
