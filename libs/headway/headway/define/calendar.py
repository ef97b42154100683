"""Words of the calendar: weekdays, months, weeks of a month, and how they are read.

`Days.MON | Days.FRI`, `"mon"` and `["mon", "fri"]` mean what they say. What cannot be read is
added to a list of problems, so that an app is told all of its mistakes at once.
"""

import difflib
import re
from collections.abc import Iterable
from datetime import date, datetime, time
from enum import Flag, auto
from typing import Literal, TypeVar, cast

from headway_decisions.timing.cadence import Week, Weekday

# The last calendar day of a month.
LAST: Literal["last"] = "last"


class Days(Flag):
    """Weekdays."""

    MON = auto()
    TUE = auto()
    WED = auto()
    THU = auto()
    FRI = auto()
    SAT = auto()
    SUN = auto()
    WEEKDAYS = MON | TUE | WED | THU | FRI
    WEEKENDS = SAT | SUN
    ALL = WEEKDAYS | WEEKENDS


class Months(Flag):
    """Months of a year; `QUARTERS` are those in which a quarter begins."""

    JAN = auto()
    FEB = auto()
    MAR = auto()
    APR = auto()
    MAY = auto()
    JUN = auto()
    JUL = auto()
    AUG = auto()
    SEP = auto()
    OCT = auto()
    NOV = auto()
    DEC = auto()
    QUARTERS = JAN | APR | JUL | OCT
    ALL = JAN | FEB | MAR | APR | MAY | JUN | JUL | AUG | SEP | OCT | NOV | DEC


class Weeks(Flag):
    """The first, second, third, fourth or last of a weekday in its month."""

    FIRST = auto()
    SECOND = auto()
    THIRD = auto()
    FOURTH = auto()
    LAST = auto()
    ALL = FIRST | SECOND | THIRD | FOURTH | LAST


DaysGiven = Days | str | Iterable[Days | str] | None
MonthsGiven = Months | str | int | Iterable[Months | str | int] | None
WeeksGiven = Weeks | str | Iterable[Weeks | str] | None
MonthDaysGiven = int | str | Iterable[int | str]
WallGiven = str | date | None  # a datetime is a date too
TimeGiven = str | time

Word = TypeVar("Word", Days, Months, Weeks)
_LOOSE_TIME = re.compile(r"\d:\d\d(?::\d\d)?")


def read(kind: type[Word], given: object, problems: list[str]) -> Word:
    """What was given, as one value of its kind."""
    if given is None:
        return kind(0)
    if isinstance(given, kind):
        return given
    if isinstance(given, str) and given.strip().upper() in kind.__members__:
        return kind[given.strip().upper()]
    if kind is Months and _is_number(given) and 1 <= cast("int", given) <= 12:
        return kind(1 << (cast("int", given) - 1))
    if isinstance(given, Iterable) and not isinstance(given, str | Flag):
        found = kind(0)
        for one in given:
            found |= read(kind, one, problems)
        return found
    problems.append(_unreadable(kind, given))
    return kind(0)


def weekdays(given: object, problems: list[str]) -> tuple[Weekday, ...]:
    """Weekdays in their order, each once."""
    return cast("tuple[Weekday, ...]", _names(read(Days, given, problems)))


def weeks(given: object, problems: list[str]) -> tuple[Week, ...]:
    """Weeks of a month in their order, each once."""
    return cast("tuple[Week, ...]", _names(read(Weeks, given, problems)))


def months(given: object, problems: list[str]) -> tuple[int, ...]:
    """Numbers of months in their order, each once."""
    chosen = read(Months, given, problems)
    return tuple(number for number, month in enumerate(Months, start=1) if month in chosen)


def month_days(given: object, problems: list[str]) -> tuple[int | Literal["last"], ...]:
    """Days of the month in their order, each once, the last day at the end."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    numbers: set[int] = set()
    last = False
    for one in cast("Iterable[object]", given) if several else [given]:
        if isinstance(one, str) and one.strip().lower() == LAST:
            last = True
        elif _is_number(one) and 1 <= cast("int", one) <= 31:
            numbers.add(cast("int", one))
        else:
            problems.append(f"{one!r} is no day of a month: use a number from 1 to 31, or LAST")
    return (*sorted(numbers), *((LAST,) if last else ()))


def wall_time(given: object, problems: list[str]) -> str | None:
    """A date, or a date and a time on the wall clock, as text."""
    if isinstance(given, datetime):
        if given.tzinfo is not None:
            problems.append(
                f"{given} carries a zone: give a time on the wall clock, and the zone as tz="
            )
        return given.replace(tzinfo=None).isoformat(" ", "seconds").removesuffix(":00")
    return given.isoformat() if isinstance(given, date) else cast("str | None", given)


def time_of_day(given: object) -> str:
    """A time of day as text, "9:00" written as "09:00"; text that is none stays as it is."""
    if isinstance(given, time):
        return given.isoformat("seconds").removesuffix(":00")
    if isinstance(given, str) and _LOOSE_TIME.fullmatch(given.strip()):
        return f"0{given.strip()}"
    return cast("str", given)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A hint at the known word that is nearest, or nothing."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _names(value: Days | Weeks) -> tuple[str, ...]:
    return tuple(str(one.name).lower() for one in value)


def _is_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


def _unreadable(kind: type[Flag], given: object) -> str:
    known = [name.lower() for name in kind.__members__]
    what = {"Days": "weekday", "Months": "month", "Weeks": "week of a month"}[kind.__name__]
    hint = did_you_mean(str(given).lower(), known)
    return f"{given!r} is no {what}: use {', '.join(known)}{hint}"
