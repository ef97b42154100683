"""How the times of two timings differ: pure, and cheap however many of them are the same.

Both are compared a day at a time. Days that are alike on both sides were compared before, days on
which neither fires are passed over, so a difference is found however many times lie before it.
"""

from bisect import bisect_right
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, date, datetime
from typing import NamedTuple

from headway_decisions.timing import timing, wall_clock
from headway_decisions.timing.days import Days, Stretch, day_of, starts_at
from headway_decisions.timing.times import DAY
from headway_decisions.timing.timing import Timing
from msgspec import Struct

from headway_scheduler.declare.moved_times import Pair, Pairing

# Comparing numbers that are known takes so much less than finding a time.
_AT_ONCE = 16
_STEPS_OF_A_DAY = 3
_NEVER = 1 << 62


class Side(NamedTuple):
    """A timing and the instant after which its times count."""

    timing: Timing
    after: int


class Differences(Struct, kw_only=True):
    """What vanishes, appears and moves: how many in all, and the first of them.

    All lists and counts of what vanishes and appears include what moves. `compared_until` is
    where patience ended, if it did: what lies behind is not counted.
    """

    vanishing: int = 0
    appearing: int = 0
    moving: int = 0
    unchanged: int = 0
    vanish: list[int] = []
    appear: list[int] = []
    moves: list[Pair] = []
    compared_until: int | None = None


class _Day(NamedTuple):
    """What differs on a day, in seconds from its start."""

    vanish: Sequence[int]
    appear: Sequence[int]
    unchanged: int


class Comparer:
    """Compares timings; remembers days from one comparison to the next."""

    def __init__(self) -> None:
        self._days = Days()
        self._compared: dict[Hashable, _Day] = {}
        self._steps = 0

    @property
    def steps(self) -> int:
        """How much has been looked at so far."""
        return self._steps + self._days.steps

    def differences(
        self,
        before: Side | None,
        after: Side | None,
        until: int,
        *,
        room: int,
        patience: int,
        stays: Callable[[int], bool] | None = None,
    ) -> Differences:
        """What differs up to and including an instant, of which the first `room` are listed.

        `stays` tells whether a time that both have stays what it is; without it all do.
        """
        found, last_step = Differences(), self.steps + patience
        chosen = after or before
        if chosen is None:
            return found
        pairing = Pairing(before.timing, after.timing) if before and after else None
        zone = wall_clock.zone_named(chosen.timing.zone)
        ahead = [_Ahead(side) for side in (before, after) if side]
        at = min(one.side.after for one in ahead)
        while (first := min((one.next(at) for one in ahead), default=until + 1)) <= until:
            day = day_of(zone, first)
            start, end = starts_at(zone, day), starts_at(zone, day + DAY)
            if self.steps >= last_step:
                found.compared_until = start - 1
                break
            self._steps += len(ahead) * _STEPS_OF_A_DAY
            one_day = self._day(before, after, start, end, until, stays)
            _add(found, one_day, start, room)
            if pairing is not None and (one_day.vanish or one_day.appear):
                self._steps += (len(one_day.vanish) + len(one_day.appear)) // _AT_ONCE
                unseen = [self._unseen(side, start, end, until) for side in (before, after)]
                _add_moves(found, pairing, day, start, one_day, room, unseen)
            at = end - 1
        if pairing is not None:
            _keep(found, pairing.rest(), room)
        listed = set(found.vanish), set(found.appear)
        found.moves = [one for one in found.moves if one[0] in listed[0] and one[1] in listed[1]]
        return found

    def _day(
        self,
        before: Side | None,
        after: Side | None,
        start: int,
        end: int,
        until: int,
        stays: Callable[[int], bool] | None,
    ) -> _Day:
        old, new = (self._times(side, start, end, until) for side in (before, after))
        if stays is not None or old.likeness is None or new.likeness is None:
            return self._compare(old, new, start, stays)
        key = (
            before.timing if before else None,
            old.likeness,
            after.timing if after else None,
            new.likeness,
        )
        if key not in self._compared:
            self._compared[key] = self._compare(old, new, start, None)
        return self._compared[key]

    def _times(self, side: Side | None, start: int, end: int, until: int) -> Stretch:
        """The times of a side on a day, as far as they count."""
        if side is None:
            return Stretch((), ())
        found = self._days.stretch(side.timing, start, end)
        if side.after < start and end - 1 <= until:
            return found
        low = bisect_right(found.seconds, side.after - start)
        return Stretch(None, found.seconds[low : bisect_right(found.seconds, until - start)])

    def _unseen(self, side: Side | None, start: int, end: int, until: int) -> bool:
        """Whether a side has times on a day that lie before or behind all that is compared."""
        if side is None or (side.after < start and end - 1 <= until):
            return False
        all_of_them = self._days.stretch(side.timing, start, end).seconds
        return len(self._times(side, start, end, until).seconds) < len(all_of_them)

    def _compare(
        self, old: Stretch, new: Stretch, start: int, stays: Callable[[int], bool] | None
    ) -> _Day:
        gone, come = set(old.seconds), set(new.seconds)
        both = gone & come
        self._steps += (len(gone) + len(come)) // _AT_ONCE
        if stays is not None:
            self._steps += 4 * len(both)
            both = {second for second in both if stays(start + second)}
        return _Day(sorted(gone - both), sorted(come - both), len(both))


class _Ahead:
    """The next time of a side, asked for only when the last answer lies behind."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self._next = side.after

    def next(self, at: int) -> int:
        at = max(at, self.side.after)
        if self._next <= at:
            found = timing.next_allowed(self.side.timing, datetime.fromtimestamp(at, UTC))
            self._next = _NEVER if found is None else int(found.timestamp())
        return self._next


def _add(found: Differences, day: _Day, start: int, room: int) -> None:
    found.vanishing += len(day.vanish)
    found.appearing += len(day.appear)
    found.unchanged += day.unchanged
    left = room - len(found.vanish) - len(found.appear)
    if left <= 0:
        return
    merged = [(second, 0) for second in day.vanish[:left]]
    merged += [(second, 1) for second in day.appear[:left]]
    for second, comes in sorted(merged)[:left]:
        (found.appear if comes else found.vanish).append(start + second)


def _add_moves(
    found: Differences,
    pairing: Pairing,
    day: date,
    start: int,
    one: _Day,
    room: int,
    unseen: Sequence[bool],
) -> None:
    vanish = [start + second for second in one.vanish]
    appear = [start + second for second in one.appear]
    _keep(found, pairing.day(day, vanish, appear, unseen), room)


def _keep(found: Differences, pairs: list[Pair], room: int) -> None:
    found.moving += len(pairs)
    found.moves += pairs[: max(0, room - len(found.moves))]
