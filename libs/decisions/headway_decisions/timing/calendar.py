"""Filters that narrow a cadence, and exclusions that cut times out of it.

Both check the wall-clock date and time of a fire. Both also return the next time that they allow,
so that no search has to step through a month of seconds.
"""

from datetime import date, datetime, timedelta

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


def opening(filters: Filters, wall: datetime) -> datetime | None:
    """Return a wall-clock time if it passes the filters, or else the earliest that could."""
    wall = max(wall, _start(filters, wall))
    day = wall.date()
    while True:
        if filters.months and day.month not in filters.months:
            day = times.first_of_next_month(day)
        elif (filters.days and WEEKDAYS[day.weekday()] not in filters.days) or (
            filters.weeks and not times.is_in_weeks(day, filters.weeks)
        ):
            day += DAY
        else:
            break
    if day != wall.date():
        wall = times.midnight(day)
    if filters.between is not None:
        window = times.window(filters.between)
        wall = wall if window.covers(wall) else times.next_at(wall, window.start)
    if filters.end is None:
        return wall
    # A date as the end includes its whole day.
    last_step = SECOND if times.has_time(filters.end) else DAY
    return wall if wall < times.moment(filters.end) + last_step else None


def horizon(filters: Filters, wall: datetime) -> datetime:
    """Return where a search from a wall-clock time ends."""
    return max(wall, _start(filters, wall)) + SEARCH


def next_filtered(cadence: Clocked, filters: Filters, wall: datetime) -> datetime | None:
    """Return the first fire of a cadence after a wall-clock time that passes the filters."""
    end = horizon(filters, wall)
    fire = next_wall(cadence, wall)
    while fire is not None:
        opens_at = opening(filters, fire)
        if opens_at == fire:
            return fire
        if opens_at is None or opens_at > end:
            return None
        fire = next_wall(cadence, opens_at - SECOND)
    return None


def _start(filters: Filters, wall: datetime) -> datetime:
    return wall if filters.start is None else times.moment(filters.start)


def covering(exclusions: tuple[Exclusion, ...], wall: datetime) -> Exclusion | None:
    """Return the first exclusion that covers a wall-clock time, or `None`."""
    return next((each for each in exclusions if _covered_until(each, wall) is not None), None)


def reopening(exclusions: tuple[Exclusion, ...], wall: datetime) -> datetime | None:
    """Return the first time from `wall` on that no exclusion covers, or `None` within ten years."""
    horizon = wall + SEARCH
    while wall <= horizon:
        ends = [_covered_until(exclusion, wall) for exclusion in exclusions]
        until = max((end for end in ends if end is not None), default=None)
        if until is None:
            return wall
        wall = until
    return None


def _covered_until(exclusion: Exclusion, wall: datetime) -> datetime | None:
    """Return when an exclusion that covers a time may end; `None` if it does not cover it."""
    day = wall.date()
    match exclusion:
        case ExcludedDays(days):
            return times.midnight(day + DAY) if WEEKDAYS[day.weekday()] in days else None
        case ExcludedDates(dates):
            return times.midnight(day + DAY) if day in dates else None
        case ExcludedRange(first, last):
            # A range may have no real end.
            end = times.midnight(last + DAY) if last < date.max else _NEVER
            return end if first <= day <= last else None
        case ExcludedTimes(between):
            window = times.window(between)
            return times.next_at(wall, window.end) if window.covers(wall) else None
