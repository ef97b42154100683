"""Exclusions as users write them: what is cut out of a cadence.

    daily("03:15", exclude=[exclude_days("sun"), exclude_range("2027-12-24", "2028-01-01")])

A fire time that an exclusion covers is recorded as skipped.
"""

from collections.abc import Iterable
from datetime import date
from typing import cast

from headway_decisions.timing.cadence import Weekday
from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Exclusion,
)

from headway.define import calendar

Excluded = Exclusion | Iterable[Exclusion] | None


def exclude_days(*days: calendar.Days | str | Iterable[calendar.Days | str]) -> Exclusion:
    """Not on these weekdays."""
    # What cannot be read stays as it is, and is told with all other problems.
    problems: list[str] = []
    read = calendar.weekdays(days, problems)
    return ExcludedDays(cast("tuple[Weekday, ...]", days) if problems else read)


def exclude_dates(*dates: date | str) -> Exclusion:
    """Not on these dates."""
    return ExcludedDates(tuple(sorted((_date(one) for one in dates), key=str)))


def exclude_range(first: date | str, last: date | str) -> Exclusion:
    """Not from one date to another, both included."""
    return ExcludedRange(_date(first), _date(last))


def exclude_times(between: str) -> Exclusion:
    """Not in a window of the day such as "22:00-06:00", its end not included."""
    return ExcludedTimes(between)


def read(given: object, problems: list[str]) -> tuple[Exclusion, ...]:
    """Exclusions that were given, one or several; what is wrong with them is added."""
    if given is None:
        return ()
    several = isinstance(given, Iterable) and not isinstance(given, str)
    found = []
    for one in cast("Iterable[object]", given) if several else [given]:
        if not isinstance(one, Exclusion):
            problems.append(
                f"exclude= takes exclude_days, exclude_dates, exclude_range or exclude_times, "
                f"not {one!r}"
            )
            continue
        wrong = list(_problems_of(one))
        problems += wrong
        if not wrong:
            found.append(one)
    return tuple(found)


def _problems_of(exclusion: Exclusion) -> Iterable[str]:
    match exclusion:
        case ExcludedDays(days):
            problems: list[str] = []
            calendar.weekdays(days, problems)
            yield from problems
        case ExcludedDates(dates):
            yield from (_no_date(one) for one in dates if not isinstance(one, date))
        case ExcludedRange(first, last):
            yield from (_no_date(one) for one in (first, last) if not isinstance(one, date))


def _date(given: date | str) -> date:
    try:
        # A datetime is a date too, but would be stored with its time.
        return date.fromisoformat(str(given)[:10] if isinstance(given, date) else given)
    except (TypeError, ValueError):
        return cast("date", given)


def _no_date(given: object) -> str:
    return f"{given!r} is no date to exclude: write one such as '2027-12-24'"
