"""Which fire times come and go when manifests change: pure, and cheap however dense they are.

Both sequences are walked side by side and only as far as there is room to tell about them.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from headway_contract.scheduling import FireChange, FireTime
from headway_decisions import jitter, timing
from headway_decisions.cadence import Once
from headway_decisions.timing import Timing
from msgspec import Struct, structs

from headway_scheduler.preview import fire_time

# How much one answer tells, so that it fits into one message: times listed for a manifest,
# times listed in all, manifests, and how many times are looked at for one and for all of them.
MOST_OF_A_MANIFEST = 200
MOST_LISTED = 3000
MOST_MANIFESTS = 2000
_MOST_STEPS_OF_ONE = 2000
_MOST_STEPS = 200_000

_INSTANT = timedelta(microseconds=1)


class Firing(Struct, frozen=True, kw_only=True):
    """How a manifest fires; `first` is its next due time."""

    timing: Timing
    jitter_seconds: float
    first: datetime | None


class Move(Struct, frozen=True, kw_only=True):
    """How a manifest fires before and after; none where it does not fire at all."""

    manifest: UUID
    external_id: str
    now: datetime
    before: Firing | None = None
    after: Firing | None = None


def changes(moves: Sequence[Move], horizon: datetime) -> list[FireChange]:
    """The fire times that come and go up to the horizon; manifests without any are left out."""
    told: list[FireChange] = []
    listed, steps = 0, 0
    for move in moves:
        room = min(MOST_OF_A_MANIFEST, MOST_LISTED - listed)
        patience = min(_MOST_STEPS_OF_ONE, _MOST_STEPS - steps)
        change, walked = _change(move, horizon, room=room, patience=patience)
        steps += walked
        if not (change.appear or change.vanish or change.truncated):
            continue
        listed += len(change.appear) + len(change.vanish)
        told.append(change)
        if len(told) == MOST_MANIFESTS:
            break
    return told


def _change(move: Move, horizon: datetime, *, room: int, patience: int) -> tuple[FireChange, int]:
    appear: list[FireTime] = []
    vanish: list[FireTime] = []
    unchanged, walked, truncated = 0, 0, False
    before, after = _times(move, move.before, horizon), _times(move, move.after, horizon)
    old, new = next(before, None), next(after, None)
    while old is not None or new is not None:
        if len(appear) + len(vanish) >= room or walked >= patience:
            truncated = True
            break
        walked += 1
        if old == new:
            unchanged += 1
            old, new = next(before, None), next(after, None)
        elif new is None or (old is not None and old < new):
            assert old is not None  # noqa: S101 - one of the two is there
            vanish.append(_vanishing(move, old[0]))
            old = next(before, None)
        else:
            appear.append(_told(move, move.after, new[0]))
            new = next(after, None)
    firing = move.after or move.before
    change = FireChange(
        manifest=move.external_id,
        zone=firing.timing.zone if firing else "UTC",
        appear=appear,
        vanish=vanish,
        unchanged=unchanged,
        truncated=truncated,
    )
    return change, walked


def _times(
    move: Move, firing: Firing | None, horizon: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Due times that no exclusion covers, each with the moment at which it is let go."""
    if firing is None or firing.first is None:
        return
    start = firing.first - _INSTANT if _still_fires(move, firing, firing.first) else move.now
    due_at = timing.next_allowed(firing.timing, start)
    while due_at is not None and due_at <= horizon:
        yield due_at, jitter.fire_at(firing.timing, move.manifest, due_at, firing.jitter_seconds)
        due_at = timing.next_allowed(firing.timing, due_at)


def _still_fires(move: Move, firing: Firing, first: datetime) -> bool:
    """Whether a first due time lies ahead: its jitter may hold it back, a one-shot may be late."""
    late = isinstance(firing.timing.cadence, Once)
    return (
        late
        or jitter.fire_at(firing.timing, move.manifest, first, firing.jitter_seconds) > move.now
    )


def _told(move: Move, firing: Firing | None, due_at: datetime) -> FireTime:
    assert firing is not None  # noqa: S101 - it has a time
    return fire_time(move.manifest, firing.timing, due_at, firing.jitter_seconds)


def _vanishing(move: Move, due_at: datetime) -> FireTime:
    """A time that goes; if a new exclusion takes it away, that is told."""
    told = _told(move, move.before, due_at)
    if move.after is None or timing.next_due(move.after.timing, due_at - _INSTANT) != due_at:
        return told
    return structs.replace(told, excluded=timing.excluded_by(move.after.timing, due_at))
