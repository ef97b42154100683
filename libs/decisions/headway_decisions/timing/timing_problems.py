"""Problems of the parts of a timing, one line each.

Structs do not check the types of their fields, so values may have any type. Nothing here raises.
"""

from collections.abc import Callable
from datetime import date
from typing import Any

from headway_decisions.timing import cron, times, wall_clock
from headway_decisions.timing.cadence import (
    DAY_SECONDS,
    LONGEST_SPACING_SECONDS,
    Cron,
    Daily,
    Every,
    Manual,
    Monthly,
    MonthlyDow,
    Once,
    Spaced,
    Weekly,
)
from headway_decisions.timing.calendar import (
    ExcludedDates,
    ExcludedDays,
    ExcludedRange,
    ExcludedTimes,
    Filters,
)
from headway_decisions.timing.times import WEEKDAYS, WEEKS

IS_EMPTY = "is empty: name at least one of"
_LONGEST_SHOWN = 80


def about_cadence(cadence: Any) -> list[str]:
    """Return the problems of a cadence."""
    match cadence:
        case Cron(expression):
            return _cron(expression)
        case Every(seconds):
            return _step(seconds)
        case Daily(time, every, anchor):
            return [*_time(time), *_count(every, 3660, "days"), *_date("anchor", anchor)]
        case Weekly(days, time, every, anchor):
            return [
                *_weekdays(days),
                *_time(time),
                *_count(every, 520, "weeks"),
                *_date("anchor", anchor),
            ]
        case Monthly(days, time):
            return [*_items("days", days, _is_month_day, "numbers 1 to 31 or 'last'"), *_time(time)]
        case MonthlyDow(weeks, days, time):
            return [*_weeks(weeks), *_weekdays(days), *_time(time)]
        case Once(at):
            return _moment("at", at, needs_time=True)
        case Spaced(seconds):
            return _spacing(seconds)
        case Manual():
            return []
    return [f"{_show(cadence)} is not a cadence: use cron, every, daily, weekly, monthly or once"]


def about_zone(zone: Any) -> list[str]:
    """Return the problems of a zone's name."""
    if not isinstance(zone, str):
        return [f"time zone {_show(zone)} is not known: use a name such as 'Europe/Berlin'"]
    return _refusal(wall_clock.zone_named, zone)


def about_filters(filters: Any) -> list[str]:
    """Return the problems of filters."""
    if not isinstance(filters, Filters):
        return [f"{_show(filters)} are not filters: use Filters(...)"]
    found = [
        *(_weekdays(filters.days) if filters.days != () else []),
        *(_items("months", filters.months, _is_month, "1 to 12") if filters.months != () else []),
        *(_weeks(filters.weeks) if filters.weeks != () else []),
        *(_window(filters.between) if filters.between is not None else []),
    ]
    bounds = [
        *(_moment("start", filters.start) if filters.start is not None else []),
        *(_moment("end", filters.end) if filters.end is not None else []),
    ]
    if not bounds and filters.start is not None and filters.end is not None:
        bounds = _order(filters.start, filters.end)
    return found + bounds


def about_exclusions(exclusions: Any) -> list[str]:
    """Return the problems of exclusions."""
    if not isinstance(exclusions, tuple):
        return [f"exclusions {_show(exclusions)} are not valid: write a tuple of exclusions"]
    return [line for exclusion in exclusions for line in _exclusion(exclusion)]


def _exclusion(exclusion: Any) -> list[str]:
    match exclusion:
        case ExcludedDays(days):
            return _weekdays(days)
        case ExcludedDates(dates):
            return _items("dates", dates, _is_date, "dates")
        case ExcludedRange(first, last):
            wrong = [*_date("first", first), *_date("last", last)]
            if not wrong and last < first:
                return [f"excluded range ends on {last}, before its first day {first}: swap them"]
            return wrong
        case ExcludedTimes(between):
            return _window(between)
    return [f"{_show(exclusion)} is not an exclusion: exclude days, dates, a range or times"]


def _cron(expression: Any) -> list[str]:
    if not isinstance(expression, str):
        return [f"cron expression {_show(expression)} is not valid: write a string of five fields"]
    return _refusal(cron.check, expression)


def _step(seconds: Any) -> list[str]:
    if _is_whole(seconds) and 1 <= seconds <= DAY_SECONDS:
        return []
    expected = "a step is a whole number of seconds, between one second and a day"
    return [f"every({_show(seconds)} s) is not valid: {expected}"]


def _spacing(seconds: Any) -> list[str]:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if is_number and 1 <= seconds <= LONGEST_SPACING_SECONDS:
        return []
    expected = "write a number of seconds, between one second and ten years"
    return [f"spaced({_show(seconds)} s) is not valid: {expected}"]


def _count(every: Any, most: int, unit: str) -> list[str]:
    if _is_whole(every) and 1 <= every <= most:
        return []
    return [f"every={_show(every)} is not valid: write a whole number of {unit}, from 1 to {most}"]


def _time(time: Any) -> list[str]:
    if not isinstance(time, str):
        return [f"time of day {_show(time)} is not valid: write it as 'HH:MM' or 'HH:MM:SS'"]
    return _refusal(times.time_of_day, time)


def _window(between: Any) -> list[str]:
    if not isinstance(between, str):
        return [f"window {_show(between)} is not valid: write it as 'HH:MM-HH:MM'"]
    return _refusal(times.window, between)


def _moment(name: str, moment: Any, *, needs_time: bool = False) -> list[str]:
    if not isinstance(moment, str):
        return [f"{name} {_show(moment)} is not valid: write it as 'YYYY-MM-DD HH:MM'"]
    if needs_time and not times.has_time(moment):
        return [f"{name} {_show(moment)} names no time: write it as 'YYYY-MM-DD HH:MM'"]
    return [f"{name} {line}" for line in _refusal(times.moment, moment)]


def _order(start: str, end: str) -> list[str]:
    # A date as the end includes its whole day, so only the order of the days matters.
    first, last = times.moment(start), times.moment(end)
    if last < (first if times.has_time(end) else times.midnight(first.date())):
        return [f"end {end!r} lies before start {start!r}: swap them"]
    return []


def _date(name: str, value: Any) -> list[str]:
    return [] if _is_date(value) else [f"{name} {_show(value)} is not a date: use datetime.date"]


def _weekdays(days: Any) -> list[str]:
    return _items("days", days, WEEKDAYS.__contains__, f"weekdays {', '.join(WEEKDAYS)}")


def _weeks(weeks: Any) -> list[str]:
    return _items("weeks", weeks, WEEKS.__contains__, ", ".join(WEEKS))


def _items(name: str, items: Any, fits: Callable[[Any], bool], expected: str) -> list[str]:
    """Return the problems of a tuple and of each of its items."""
    if not isinstance(items, tuple):
        return [f"{name} {_show(items)} is not valid: write a tuple of {expected}"]
    if not items:
        return [f"{name} {IS_EMPTY} {expected}"]
    wrong = [item for item in items if not fits(item)]
    return [f"{name} holds {_show(item)}, which is not valid: use {expected}" for item in wrong]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_month(value: Any) -> bool:
    return _is_whole(value) and 1 <= value <= 12


def _is_month_day(value: Any) -> bool:
    return (isinstance(value, str) and value == "last") or (_is_whole(value) and 1 <= value <= 31)


def _is_date(value: Any) -> bool:
    # A datetime is a subclass of date, but cannot be compared with one.
    return type(value) is date


def _refusal(read: Callable[[str], object], text: str) -> list[str]:
    try:
        read(text)
    except ValueError as error:
        return [str(error)]
    return []


def _show(value: Any) -> str:
    try:
        shown = repr(value)
    except ValueError:
        # Python refuses to format numbers of thousands of digits.
        return f"of type {type(value).__name__}"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"
