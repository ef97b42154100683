"""Weekdays and the weeks of a month, on plain dates."""

from calendar import monthrange
from collections.abc import Iterator
from datetime import date
from typing import Literal, get_args

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Week = Literal["first", "second", "third", "fourth", "last"]
WEEKDAYS: tuple[Weekday, ...] = get_args(Weekday)
WEEKS: tuple[Week, ...] = get_args(Week)


def days_in_month(year: int, month: int) -> int:
    """The number of the month's last day."""
    return monthrange(year, month)[1]


def weeks_of(day: date) -> tuple[Week, ...]:
    """Which of its weekday a date is in its month: the fourth may be the last as well.

    A fifth one is only ever the last.
    """
    count = (day.day - 1) // 7
    named: tuple[Week, ...] = (WEEKS[count],) if count < 4 else ()
    is_last = day.day + 7 > days_in_month(day.year, day.month)
    return (*named, "last") if is_last else named


def months_from(day: date) -> Iterator[tuple[int, int]]:
    """The year and month of a date, and the twelve months that follow."""
    for count in range(day.month - 1, day.month + 12):
        yield day.year + count // 12, count % 12 + 1


def first_of_next_month(day: date) -> date:
    """The day on which the following month begins."""
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)
