"""Filters that narrow a cadence, and exclusions that cut times out of it.

Both check the wall-clock date and time of a fire. Both also return the next time that they allow,
so that no search has to step through a month of seconds.
"""

from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from headway_decisions import wording
from headway_decisions.timing import times
from headway_decisions.timing.cadence import Clocked, next_wall
from headway_decisions.timing.cron import SEARCH_YEARS
from headway_decisions.timing.times import DAY, SECOND, WEEKDAYS, Week, Weekday

SEARCH = timedelta(days=SEARCH_YEARS * 366)
_NEVER = times.midnight(date.max)


class Filters(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Conditions on a fire time. An empty filter restricts nothing.

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
    """Filters, parsed."""

    weekdays: frozenset[int]
    months: tuple[int, ...]
    weeks: tuple[Week, ...]
    window: times.Window | None
    start: datetime | None
    ends_before: datetime | None

    def opening(self, wall: datetime) -> datetime | None:
        """Return a wall-clock time if it passes, or else the earliest that could.

        Check the result again, because its date may not pass.
        """
        if self.start is not None and wall < self.start:
            wall = self.start
        wall = self._next_day(wall)
        if self.window is not None and not self.window.covers(wall):
            wall = times.next_at(wall, self.window.start)
        return None if self.ends_before is not None and wall >= self.ends_before else wall

    def horizon(self, wall: datetime) -> datetime:
        """Return where a search from a wall-clock time ends."""
        return (wall if self.start is None else max(wall, self.start)) + SEARCH

    def _next_day(self, wall: datetime) -> datetime:
        """Return the time if its date passes, or else midnight of the next date that does."""
        day = wall.date()
        while not self._passes(day):
            day = day + DAY if self._in_month(day) else times.first_of_next_month(day)
        return wall if day == wall.date() else times.midnight(day)

    def _passes(self, day: date) -> bool:
        return (
            self._in_month(day)
            and (not self.weekdays or day.weekday() in self.weekdays)
            and (not self.weeks or times.is_in_weeks(day, self.weeks))
        )

    def _in_month(self, day: date) -> bool:
        return not self.months or day.month in self.months


def next_filtered(cadence: Clocked, passage: Passage, wall: datetime) -> datetime | None:
    """Return the first fire of a cadence after a wall-clock time that passes the filters."""
    horizon = passage.horizon(wall)
    fire = next_wall(cadence, wall)
    while fire is not None:
        opening = passage.opening(fire)
        if opening == fire:
            return fire
        if opening is None or opening > horizon:
            return None
        fire = next_wall(cadence, opening - SECOND)
    return None


@lru_cache(maxsize=16_384)
def passage(filters: Filters) -> Passage:
    """Parse valid filters."""
    return Passage(
        weekdays=frozenset(WEEKDAYS.index(day) for day in filters.days),
        months=filters.months,
        weeks=filters.weeks,
        window=times.window(filters.between) if filters.between is not None else None,
        start=times.moment(filters.start) if filters.start is not None else None,
        ends_before=_first_after(filters.end) if filters.end is not None else None,
    )


def covering(exclusions: tuple[Exclusion, ...], wall: datetime) -> Exclusion | None:
    """Return the first exclusion that covers a wall-clock time, or `None`."""
    return next((exclusion for exclusion in exclusions if _covers(exclusion, wall)), None)


def reopening(exclusions: tuple[Exclusion, ...], wall: datetime) -> datetime | None:
    """Return the first time from `wall` on that no exclusion covers, or `None` within ten years."""
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
    """Return the first time after a covered one at which the exclusion may end."""
    match exclusion:
        case ExcludedDays() | ExcludedDates():
            return times.midnight(wall.date() + DAY)
        case ExcludedRange(_, last):
            # A range may have no real end.
            return times.midnight(last + DAY) if last < date.max else _NEVER
        case ExcludedTimes(between):
            return times.next_at(wall, times.window(between).end)


def _first_after(end: str) -> datetime:
    """Return the first time after an inclusive end; a date includes its whole day."""
    return times.moment(end) + (SECOND if times.has_time(end) else DAY)
