"""Filters that narrow a cadence, and exclusions that cut times out of it.

Both look at the wall-clock time of a fire itself: at its date and at its time of day. Both
can tell where the next time lies that they let through, so that nobody has to step through
a month of seconds to find the end of it.
"""

from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from headway_decisions import wording
from headway_decisions.timing import times
from headway_decisions.timing.cadence import Clocked
from headway_decisions.timing.cron import SEARCH_YEARS
from headway_decisions.timing.times import (
    DAY,
    SECOND,
    WEEKDAYS,
    Week,
    Weekday,
    first_of_next_month,
    midnight,
    weeks_of,
)

SEARCH = timedelta(days=SEARCH_YEARS * 366)
_FOR_EVER = midnight(date.max)


class Filters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a fire time must fulfil. An empty filter restricts nothing.

    `between` is a window "HH:MM-HH:MM", its start included and its end not, and may cross
    midnight. `start` and `end` are dates or times, both included.
    """

    days: tuple[Weekday, ...] = ()
    months: tuple[int, ...] = ()
    weeks: tuple[Week, ...] = ()
    between: str | None = None
    start: str | None = None
    end: str | None = None


class ExcludedDays(Struct, frozen=True, tag="days"):
    """These weekdays."""

    days: tuple[Weekday, ...]

    def __str__(self) -> str:
        return f"on {wording.weekdays(self.days, 'or')}"


class ExcludedDates(Struct, frozen=True, tag="dates"):
    """These dates."""

    dates: tuple[date, ...]

    def __str__(self) -> str:
        return f"on {wording.listed(self.dates, 'or')}"


class ExcludedRange(Struct, frozen=True, tag="range"):
    """From one date to another, both included."""

    first: date
    last: date

    def __str__(self) -> str:
        return f"from {self.first} to {self.last}"


class ExcludedTimes(Struct, frozen=True, tag="times"):
    """A window of the day, "HH:MM-HH:MM", which may cross midnight."""

    between: str

    def __str__(self) -> str:
        return f"between {self.between}"


Exclusion = ExcludedDays | ExcludedDates | ExcludedRange | ExcludedTimes


class Passage(NamedTuple):
    """Filters, read: what they let pass."""

    weekdays: frozenset[int]
    months: tuple[int, ...]
    weeks: tuple[Week, ...]
    window: times.Window | None
    start: datetime | None
    ends_before: datetime | None

    def opening(self, wall: datetime) -> datetime | None:
        """A wall-clock time itself if it passes, or else the earliest that could.

        What could pass is to be asked again: its date may be none that passes.
        """
        if self.start is not None and wall < self.start:
            wall = self.start
        wall = self._next_day(wall)
        if self.window is not None and not self.window.covers(wall):
            wall = self.window.opens_at(wall)
        return None if self.ends_before is not None and wall >= self.ends_before else wall

    def horizon(self, wall: datetime) -> datetime:
        """Where a search that begins at a wall-clock time gives up."""
        return (wall if self.start is None else max(wall, self.start)) + SEARCH

    def _next_day(self, wall: datetime) -> datetime:
        """The same time if its date passes, or else the midnight of the first that does."""
        day = wall.date()
        while not self._passes(day):
            day = day + DAY if self._in_month(day) else first_of_next_month(day)
        return wall if day == wall.date() else midnight(day)

    def _passes(self, day: date) -> bool:
        return (
            self._in_month(day)
            and (not self.weekdays or day.weekday() in self.weekdays)
            and (not self.weeks or any(week in self.weeks for week in weeks_of(day)))
        )

    def _in_month(self, day: date) -> bool:
        return not self.months or day.month in self.months


class Filtered:
    """A cadence that is narrowed by filters; itself something that ticks."""

    def __init__(self, cadence: Clocked, passage: Passage) -> None:
        self._cadence = cadence
        self._passage = passage
        self.fires_in_repeated_hour = cadence.fires_in_repeated_hour

    def next_wall(self, wall: datetime) -> datetime | None:
        """The first fire strictly after a wall-clock time that passes the filters."""
        horizon = self._passage.horizon(wall)
        fire = self._cadence.next_wall(wall)
        while fire is not None:
            opening = self._passage.opening(fire)
            if opening == fire:
                return fire
            if opening is None or opening > horizon:
                return None
            fire = self._cadence.next_wall(opening - SECOND)
        return None


@lru_cache(maxsize=16_384)
def passage(filters: Filters) -> Passage:
    """Read filters that have no problems."""
    return Passage(
        weekdays=frozenset(WEEKDAYS.index(day) for day in filters.days),
        months=filters.months,
        weeks=filters.weeks,
        window=times.window(filters.between) if filters.between is not None else None,
        start=times.moment(filters.start) if filters.start is not None else None,
        ends_before=_after_the_end(filters.end) if filters.end is not None else None,
    )


def covering(exclusions: tuple[Exclusion, ...], wall: datetime) -> Exclusion | None:
    """The first exclusion that covers a wall-clock time, if any does."""
    for exclusion in exclusions:
        if _covers(exclusion, wall):
            return exclusion
    return None


def reopening(exclusions: tuple[Exclusion, ...], wall: datetime) -> datetime | None:
    """The first time from a wall-clock time on that no exclusion covers, if any within years."""
    horizon = wall + SEARCH
    while (exclusion := covering(exclusions, wall)) is not None:
        wall = _end_of(exclusion, wall)
        if wall > horizon:
            return None
    return wall


def _covers(exclusion: Exclusion, wall: datetime) -> bool:
    match exclusion:
        case ExcludedDays(days):
            return WEEKDAYS[wall.weekday()] in days
        case ExcludedDates(dates):
            return wall.date() in dates
        case ExcludedRange(first, last):
            return first <= wall.date() <= last
        case ExcludedTimes(between):
            return times.window(between).covers(wall)


def _end_of(exclusion: Exclusion, wall: datetime) -> datetime:
    """The first time after a covered one at which this exclusion may be over."""
    match exclusion:
        case ExcludedDays() | ExcludedDates():
            return _tomorrow(wall)
        case ExcludedRange(_, last):
            # A range may well be meant to last for ever.
            return midnight(last + DAY) if last < date.max else _FOR_EVER
        case ExcludedTimes(between):
            return times.window(between).closes_at(wall)


def _tomorrow(wall: datetime) -> datetime:
    return midnight(wall.date() + DAY)


def _after_the_end(end: str) -> datetime:
    """The first time that an inclusive end does not include: a date means the whole day."""
    return times.moment(end) + (SECOND if times.has_time(end) else DAY)
