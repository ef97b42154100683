"""The allowed times of a timing, day by day: days that are alike are looked through once.

On most days a cadence that fires often does so at the same times of day, or not at all. So a
minute's grid over ten years is one day's times and a list of days. A day is looked at for itself
only where the clock jumps, where a filter begins or ends, and if the cadence fires now and then.

Instants are whole seconds of the epoch here, because there may be very many of them.
"""

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from headway_decisions.timing import calendar, cron, times, timing, wall_clock
from headway_decisions.timing.cadence import Cron, Daily, Every, Manual, Spaced
from headway_decisions.timing.calendar import ExcludedTimes, Filters
from headway_decisions.timing.times import DAY, SECOND, midnight
from headway_decisions.timing.timing import Timing

_NO_TIMES = "no times"
_USUAL = "usual"
# What it takes to see what a day is like, in times that are walked to.
_STEPS_OF_A_DAY = 2
# A time that is read off the wall clock takes so much less than one that is walked to.
_EASE = 4
_INSTANT = timedelta(microseconds=1)


class Stretch(NamedTuple):
    """Times in seconds from the start of a stretch; `likeness` is none if no other is like it."""

    likeness: Hashable | None
    seconds: Sequence[int]


class _Seen(NamedTuple):
    """Times of a day in seconds from its start, and the steps that it took to find them."""

    seconds: list[int]
    steps: int


class _Part(NamedTuple):
    """A day of which a stretch has a part, with its start in seconds from that of the stretch."""

    day: date
    likeness: Hashable
    shift: int


class Days:
    """Remembers what days are like, and counts the steps that it took to see."""

    def __init__(self) -> None:
        self.steps = 0
        self._known: dict[tuple[Timing, Hashable], list[int]] = {}
        self._joins: dict[tuple[Timing, Hashable], list[int]] = {}

    def stretch(self, kept: Timing, start: int, end: int) -> Stretch:
        """The allowed times in [start, end), a day or so that may be another zone's."""
        zone = wall_clock.zone_named(kept.zone)
        day = day_of(zone, start)
        if start == starts_at(zone, day) and end == starts_at(zone, day + DAY):
            self.steps += _STEPS_OF_A_DAY
            like = _likeness(kept, day)
            return Stretch(None if like == day else like, self._of_day(kept, day, like))
        return self._foreign(kept, start, end)

    def _foreign(self, kept: Timing, start: int, end: int) -> Stretch:
        """A stretch that is no day of the timing's own zone: parts of two, or of more."""
        zone = wall_clock.zone_named(kept.zone)
        day, last = day_of(zone, start), day_of(zone, end - 1)
        parts: list[_Part] = []
        while day <= last:
            parts.append(_Part(day, _likeness(kept, day), starts_at(zone, day) - start))
            day += DAY
        self.steps += len(parts) * _STEPS_OF_A_DAY
        if any(part.likeness == part.day for part in parts):
            return Stretch(None, self._joined(kept, parts, end - start))
        likeness = (end - start, *((part.likeness, part.shift) for part in parts))
        if (kept, likeness) not in self._joins:
            self._joins[kept, likeness] = self._joined(kept, parts, end - start)
        return Stretch(likeness, self._joins[kept, likeness])

    def _joined(self, kept: Timing, parts: Sequence[_Part], length: int) -> list[int]:
        """The times of days that follow each other, as far as they lie in a stretch."""
        found: list[int] = []
        for part in parts:
            seconds = self._of_day(kept, part.day, part.likeness)
            inside = (part.shift + second for second in seconds)
            found += (second for second in inside if 0 <= second < length)
        return found

    def count(
        self, kept: Timing, after: int, until: int, *, most_steps: int | None = None
    ) -> int | None:
        """How many allowed times lie in (after, until]; none if all steps are used up before."""
        zone = wall_clock.zone_named(kept.zone)
        day, last = day_of(zone, after), day_of(zone, until)
        total = 0
        while day <= last:
            if most_steps is not None and self.steps >= most_steps:
                return None
            self.steps += _STEPS_OF_A_DAY
            begins, seconds = starts_at(zone, day), self._of_day(kept, day, _likeness(kept, day))
            total += bisect_right(seconds, until - begins) - bisect_right(seconds, after - begins)
            day += DAY
        return total

    def _of_day(self, kept: Timing, day: date, likeness: Hashable) -> list[int]:
        if likeness == _NO_TIMES:
            return []
        known = self._known.get((kept, likeness))
        if known is None:
            known, steps = _looked_through(kept, day)
            self.steps += steps
            self._known[kept, likeness] = known
        return known


def day_of(zone: ZoneInfo, instant: int) -> date:
    """The local day that an instant belongs to: from where it starts to where the next does."""
    day = datetime.fromtimestamp(instant, zone).date()
    # A clock that is put back over midnight shows the day before once more.
    return day + DAY if instant >= starts_at(zone, day + DAY) else day


@lru_cache(maxsize=8192)
def starts_at(zone: ZoneInfo, day: date) -> int:
    """The first instant at which the clock shows a day or, if it leaves it out, a later one."""
    start = datetime.combine(day, datetime.min.time(), tzinfo=zone).astimezone(UTC)
    if wall_clock.wall_at(zone, start) != midnight(day):
        jump = wall_clock.next_transition(zone, start - 2 * DAY, start)
        start = start if jump is None else jump.at
    return int(start.timestamp())


def _looked_through(kept: Timing, day: date) -> _Seen:
    """The times of a day: read off the wall clock where that runs evenly, else walked through."""
    zone = wall_clock.zone_named(kept.zone)
    jumps = _jumps(zone, day.year).get(day, ())
    if not jumps:
        return _on_the_wall(kept, midnight(day), midnight(day + DAY))
    start, end = starts_at(zone, day), starts_at(zone, day + DAY)
    jump = jumps[0]
    if len(jumps) > 1 or jump.old_wall.date() != jump.new_wall.date():
        return _walked(kept, start, start, end)
    shift, at = jump.after - jump.before, int(jump.at.timestamp())
    resumes = jump.new_wall + max(-shift, timedelta(0))
    head = _on_the_wall(kept, midnight(day), jump.old_wall)
    jumped = _walked(kept, start, at, at + max(0, -int(shift.total_seconds())) + 1)
    tail = _on_the_wall(kept, resumes + SECOND, midnight(day + DAY))
    late = [second - int(shift.total_seconds()) for second in tail.seconds]
    return _Seen(head.seconds + jumped.seconds + late, head.steps + jumped.steps + tail.steps)


def _on_the_wall(kept: Timing, first: datetime, end: datetime) -> _Seen:
    """The times of day from one wall-clock time to before another, between which none jumps."""
    assert not isinstance(kept.cadence, Spaced | Manual)  # noqa: S101 - these have no times
    passage = None if kept.filters == Filters() else calendar.passage(kept.filters)
    found: list[int] = []
    steps, wall = 1, kept.cadence.next_wall(first - SECOND)
    while wall is not None and wall < end:
        steps += 1
        if (passage is None or passage.opening(wall) == wall) and (
            not kept.exclusions or calendar.covering(kept.exclusions, wall) is None
        ):
            found.append(times.second_of_day(wall))
        wall = kept.cadence.next_wall(wall)
    return _Seen(found, steps // _EASE)


def _walked(kept: Timing, start: int, first: int, end: int) -> _Seen:
    """The times from one instant to before another, in seconds from a start."""
    found: list[int] = []
    at = timing.next_allowed(kept, datetime.fromtimestamp(first, UTC) - _INSTANT)
    while at is not None and (second := int(at.timestamp())) < end:
        found.append(second - start)
        at = timing.next_allowed(kept, at)
    return _Seen(found, len(found) + 1)


def _likeness(kept: Timing, day: date) -> Hashable:
    """What tells the times of a day: that it has none, that they are the usual, or the day."""
    start, end = _bounds(kept.filters)
    if day in (start, end) or day in _jumps(wall_clock.zone_named(kept.zone), day.year):
        return day
    if (start is not None and day < start) or (end is not None and day > end):
        return _NO_TIMES
    match kept.cadence:
        case Every() | Daily(every=1):
            fires = True
        case Cron(expression):
            fires = cron.matches_day(expression, day)
        case Spaced() | Manual():
            fires = False
        case _:
            return day
    return _USUAL if fires and _is_open(kept, midnight(day)) else _NO_TIMES


def _is_open(kept: Timing, wall: datetime) -> bool:
    """Whether filters and exclusions of whole days let a day pass, of which this is midnight."""
    passage, exclusions = _of_whole_days(kept)
    if passage is not None and passage.opening(wall) != wall:
        return False
    return calendar.covering(exclusions, wall) is None


@lru_cache(maxsize=4096)
def _of_whole_days(kept: Timing) -> tuple[calendar.Passage | None, tuple[calendar.Exclusion, ...]]:
    filters = kept.filters
    whole = Filters(days=filters.days, months=filters.months, weeks=filters.weeks)
    exclusions = tuple(one for one in kept.exclusions if not isinstance(one, ExcludedTimes))
    return None if whole == Filters() else calendar.passage(whole), exclusions


def _bounds(filters: Filters) -> tuple[date | None, date | None]:
    start = None if filters.start is None else times.moment(filters.start).date()
    return start, None if filters.end is None else times.moment(filters.end).date()


@lru_cache(maxsize=4096)
def _jumps(zone: ZoneInfo, year: int) -> dict[date, tuple[wall_clock.Transition, ...]]:
    """The jumps of the clock around a year, by the days that they touch."""
    found: dict[date, tuple[wall_clock.Transition, ...]] = {}
    for near in range(year - 1, year + 2):
        for transition in wall_clock.transitions(zone, near):
            day, last = sorted((transition.old_wall.date(), transition.new_wall.date()))
            while day <= last:
                found[day] = (*found.get(day, ()), transition)
                day += DAY
    return found
