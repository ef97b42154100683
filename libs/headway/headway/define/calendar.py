"""Calendar words as users write them: weekdays, months, weeks of a month, and exclusions.

`Days.MON | Days.FRI`, `"mon"` and `["mon", "fri"]` are all accepted. A value that cannot be read
is added to a list of problems, so that an app reports all of its mistakes at once.

    daily("03:15", exclude=[exclude_days("sun"), exclude_range("2027-12-24", "2028-01-01")])

The ledger records a fire time that an exclusion covers as skipped.
"""

import difflib
import re
from collections.abc import Iterable
from datetime import date, datetime, time
from enum import Flag
from typing import Literal, TypeVar, cast

from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Exclusion,
)
from headway_decisions.timing.times import Week, Weekday

# The last calendar day of a month.
LAST: Literal["last"] = "last"


class Days(Flag):
    """Weekdays."""

    MON, TUE, WED, THU, FRI, SAT, SUN = (1 << bit for bit in range(7))
    WEEKDAYS = MON | TUE | WED | THU | FRI
    WEEKENDS = SAT | SUN
    ALL = WEEKDAYS | WEEKENDS


class Months(Flag):
    """Months of a year; `QUARTERS` are the first months of each quarter."""

    JAN, FEB, MAR, APR, MAY, JUN = (1 << bit for bit in range(6))
    JUL, AUG, SEP, OCT, NOV, DEC = (1 << bit for bit in range(6, 12))
    QUARTERS = JAN | APR | JUL | OCT
    ALL = JAN | FEB | MAR | APR | MAY | JUN | JUL | AUG | SEP | OCT | NOV | DEC


class Weeks(Flag):
    """The first, second, third, fourth or last of a weekday in its month."""

    FIRST, SECOND, THIRD, FOURTH, LAST = (1 << bit for bit in range(5))
    ALL = FIRST | SECOND | THIRD | FOURTH | LAST


DaysGiven = Days | str | Iterable[Days | str] | None
MonthsGiven = Months | str | int | Iterable[Months | str | int] | None
WeeksGiven = Weeks | str | Iterable[Weeks | str] | None
MonthDaysGiven = int | str | Iterable[int | str]
WallGiven = str | date | None  # a datetime is a date too
TimeGiven = str | time

Word = TypeVar("Word", Days, Months, Weeks)
_LOOSE_TIME = re.compile(r"\d:\d\d(?::\d\d)?")


def _read_flags(kind: type[Word], given: object, problems: list[str]) -> Word:
    """Read one or several words or flags of a kind."""
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
        for part in given:
            found |= _read_flags(kind, part, problems)
        return found
    known = [name.lower() for name in kind.__members__]
    noun = {"Days": "weekday", "Months": "month", "Weeks": "week of a month"}[kind.__name__]
    hint = did_you_mean(str(given).lower(), known)
    problems.append(f"{given!r} is not a {noun}: use {', '.join(known)}{hint}")
    return kind(0)


def weekdays(given: object, problems: list[str]) -> tuple[Weekday, ...]:
    """Read weekdays, in order and without duplicates."""
    return cast("tuple[Weekday, ...]", _names(_read_flags(Days, given, problems)))


def weeks(given: object, problems: list[str]) -> tuple[Week, ...]:
    """Read weeks of a month, in order and without duplicates."""
    return cast("tuple[Week, ...]", _names(_read_flags(Weeks, given, problems)))


def months(given: object, problems: list[str]) -> tuple[int, ...]:
    """Read months as numbers, in order and without duplicates."""
    chosen = _read_flags(Months, given, problems)
    return tuple(number for number, month in enumerate(Months, start=1) if month in chosen)


def month_days(given: object, problems: list[str]) -> tuple[int | Literal["last"], ...]:
    """Read days of the month, in order and without duplicates, the last day at the end."""
    several = isinstance(given, Iterable) and not isinstance(given, str)
    numbers: set[int] = set()
    last = False
    for day in cast("Iterable[object]", given) if several else [given]:
        if isinstance(day, str) and day.strip().lower() == LAST:
            last = True
        elif _is_number(day) and 1 <= cast("int", day) <= 31:
            numbers.add(cast("int", day))
        else:
            problems.append(f"{day!r} is not a day of the month: use 1 to 31, or LAST")
    return (*sorted(numbers), *((LAST,) if last else ()))


def wall_time(given: object, problems: list[str]) -> str | None:
    """Convert a date or a wall-clock time to text."""
    if isinstance(given, datetime):
        if given.tzinfo is not None:
            problems.append(f"{given} has a zone: give a wall-clock time, and the zone as tz=")
        return given.replace(tzinfo=None).isoformat(" ", "seconds").removesuffix(":00")
    return given.isoformat() if isinstance(given, date) else cast("str | None", given)


def time_of_day(given: object) -> str:
    """Convert a time of day to text, "9:00" to "09:00"; return any other text unchanged."""
    if isinstance(given, time):
        return given.isoformat("seconds").removesuffix(":00")
    if isinstance(given, str) and _LOOSE_TIME.fullmatch(given.strip()):
        return f"0{given.strip()}"
    return cast("str", given)


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a hint at the closest known word, or an empty text."""
    near = difflib.get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _names(value: Days | Weeks) -> tuple[str, ...]:
    return tuple(str(flag.name).lower() for flag in value)


def _is_number(given: object) -> bool:
    return isinstance(given, int) and not isinstance(given, bool)


Excluded = Exclusion | Iterable[Exclusion] | None


def exclude_days(*days: Days | str | Iterable[Days | str]) -> Exclusion:
    """Exclude weekdays."""
    # `read_exclusions` reports a value that is not a weekday.
    problems: list[str] = []
    read = weekdays(days, problems)
    return ExcludedDays(cast("tuple[Weekday, ...]", days) if problems else read)


def exclude_dates(*dates: date | str) -> Exclusion:
    """Exclude dates."""
    return ExcludedDates(tuple(sorted((_date(day) for day in dates), key=str)))


def exclude_range(first: date | str, last: date | str) -> Exclusion:
    """Exclude the dates from `first` to `last`, both included."""
    return ExcludedRange(_date(first), _date(last))


def exclude_times(between: str) -> Exclusion:
    """Exclude a window of the day such as "22:00-06:00", without its end."""
    return ExcludedTimes(between)


def read_exclusions(given: object, problems: list[str]) -> tuple[Exclusion, ...]:
    """Read one or several exclusions, and add their problems."""
    if given is None:
        return ()
    several = isinstance(given, Iterable) and not isinstance(given, str)
    found = []
    for exclusion in cast("Iterable[object]", given) if several else [given]:
        if not isinstance(exclusion, Exclusion):
            problems.append(
                f"exclude= takes exclude_days, exclude_dates, exclude_range or exclude_times, "
                f"not {exclusion!r}"
            )
            continue
        wrong: list[str] = []
        if isinstance(exclusion, ExcludedDays):
            weekdays(exclusion.days, wrong)
        problems += wrong
        if not wrong:
            found.append(exclusion)
    return tuple(found)


def _date(given: date | str) -> date:
    """Read a date; the checks of the timing report any other value."""
    try:
        # A datetime is a date too, but would be stored with its time.
        return date.fromisoformat(str(given)[:10] if isinstance(given, date) else given)
    except (TypeError, ValueError):
        return cast("date", given)
