"""Dates, weekdays, times of day and windows of the day, as users write them."""

import re
from calendar import monthrange
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Week = Literal["first", "second", "third", "fourth", "last"]
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)
WEEKS: tuple[Week, ...] = get_args(Week)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
# A year outside of these is a typing error, and none of these overflows in a zone.
EARLIEST_YEAR, LATEST_YEAR = 1970, 2199

_TIME = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_MOMENT = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?: ([0-9:]+))?")


class Window(NamedTuple):
    """A part of the day in seconds from midnight, without its end; it may cross midnight."""

    start: int
    end: int

    def covers(self, wall: datetime) -> bool:
        """Return whether a wall-clock time is inside."""
        second = second_of_day(wall)
        if self.start < self.end:
            return self.start <= second < self.end
        return second >= self.start or second < self.end


@lru_cache(maxsize=4096)
def time_of_day(text: str) -> time:
    """Parse H:MM, HH:MM or HH:MM:SS."""
    found = _TIME.fullmatch(text)
    hour, minute, second = (int(part or 0) for part in found.groups()) if found else (24, 0, 0)
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"time of day {text!r} is not valid: write it as HH:MM or HH:MM:SS")
    return time(hour, minute, second)


@lru_cache(maxsize=4096)
def window(text: str) -> Window:
    """Parse a window such as 22:00-02:00."""
    first, dash, last = text.partition("-")
    if not dash:
        raise ValueError(f"window {text!r} is not valid: write it as HH:MM-HH:MM")
    start, end = (second_of_day(time_of_day(part.strip())) for part in (first, last))
    if start == end:
        raise ValueError(
            f"window {text!r} ends where it starts: write two different times, or leave it out"
        )
    return Window(start, end)


@lru_cache(maxsize=4096)
def moment(text: str) -> datetime:
    """Parse YYYY-MM-DD HH:MM[:SS], or YYYY-MM-DD as its midnight."""
    found = _MOMENT.fullmatch(text)
    try:
        day = date.fromisoformat(found[1] if found else "")
    except ValueError as error:
        raise ValueError(f"{text!r} is not valid: write it as YYYY-MM-DD HH:MM") from error
    if not EARLIEST_YEAR <= day.year <= LATEST_YEAR:
        raise ValueError(
            f"{text!r} is not valid: its year must lie between {EARLIEST_YEAR} and {LATEST_YEAR}"
        )
    return datetime.combine(day, time_of_day(found[2]) if found and found[2] else time())


def has_time(text: str) -> bool:
    """Return whether a text has a time of day, and not the date alone."""
    return " " in text


def midnight(day: date) -> datetime:
    """Return the start of a day on the wall clock."""
    return datetime.combine(day, time())


def second_of_day(wall: datetime | time) -> int:
    """Return the whole seconds since midnight."""
    return wall.hour * 3600 + wall.minute * 60 + wall.second


def next_at(wall: datetime, second: int) -> datetime:
    """Return the first time after `wall` that is so many seconds after a midnight."""
    at = midnight(wall.date()) + timedelta(seconds=second)
    return at if at > wall else at + DAY


def days_in_month(year: int, month: int) -> int:
    """Return the number of days of a month."""
    return monthrange(year, month)[1]


def is_in_weeks(day: date, weeks: tuple[Week, ...]) -> bool:
    """Return whether a date is such an occurrence of its weekday in the month."""
    # The fourth may also be the last; a fifth is always the last.
    is_last = day.day + 7 > days_in_month(day.year, day.month)
    return WEEKS[(day.day - 1) // 7] in weeks or (is_last and "last" in weeks)


def first_of_next_month(day: date) -> date:
    """Return the first day of the next month."""
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)
