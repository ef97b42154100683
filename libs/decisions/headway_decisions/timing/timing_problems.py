"""Problems of the parts of a timing, one line each.

Structs do not check the types of their fields, so values may have any type. Nothing here raises.
"""

from collections.abc import Callable
from datetime import date
from typing import Any

from headway_contract.fitting import show
from msgspec import Struct

from headway_decisions.timing import cadence as kinds
from headway_decisions.timing import cron, times, wall_clock
from headway_decisions.timing.calendar import ExcludedRange, Exclusion, Filters
from headway_decisions.timing.times import WEEKDAYS, WEEKS

IS_EMPTY = "is empty: name at least one of"

# Returns the problems of the value of a field.
Check = Callable[[str, Any], list[str]]


def about_parts(timing: Any) -> list[str]:
    """Return the problems of all parts of a timing."""
    return [
        *about_cadence(timing.cadence),
        *about_zone(timing.zone),
        *about_filters(timing.filters),
        *about_exclusions(timing.exclusions),
    ]


def about_cadence(cadence: Any) -> list[str]:
    """Return the problems of a cadence."""
    if not isinstance(cadence, kinds.Cadence):
        expected = "use cron, every, daily, weekly, monthly or once"
        return [f"{show(cadence)} is not a cadence: {expected}"]
    return _field_problems(cadence)


def about_zone(zone: Any) -> list[str]:
    """Return the problems of a zone's name."""
    return _ZONE("zone", zone)


def about_filters(filters: Any) -> list[str]:
    """Return the problems of filters."""
    if not isinstance(filters, Filters):
        return [f"{show(filters)} are not filters: use Filters(...)"]
    start, end = filters.start, filters.end
    problems = _field_problems(filters, without=Filters())
    wrong = [*_MOMENT("start", start), *_MOMENT("end", end)]
    if start is not None and end is not None and not wrong:
        # A date as the end includes its whole day, so only the order of the days matters.
        first, last = times.moment(start), times.moment(end)
        if last < (first if times.has_time(end) else times.midnight(first.date())):
            problems.append(f"end {end!r} lies before start {start!r}: swap them")
    return problems


def about_exclusions(exclusions: Any) -> list[str]:
    """Return the problems of exclusions."""
    if not isinstance(exclusions, tuple):
        return [f"exclusions {show(exclusions)} are not valid: write a tuple of exclusions"]
    return [line for exclusion in exclusions for line in _exclusion(exclusion)]


def _exclusion(exclusion: Any) -> list[str]:
    if not isinstance(exclusion, Exclusion):
        return [f"{show(exclusion)} is not an exclusion: exclude days, dates, a range or times"]
    problems = _field_problems(exclusion)
    if not problems and isinstance(exclusion, ExcludedRange) and exclusion.last < exclusion.first:
        first, last = exclusion.first, exclusion.last
        return [f"excluded range ends on {last}, before its first day {first}: swap them"]
    return problems


def _field_problems(part: Struct, *, without: Struct | None = None) -> list[str]:
    """Return the problems of all fields, except those with the same value in `without`."""
    problems = []
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if without is None or value != getattr(without, name):
            check = _CHECKS_OF_TYPES.get((type(part), name)) or _CHECKS[name]
            problems += check(name, value)
    return problems


def _text(parse: Callable[[str], object], noun: str, form: str) -> Check:
    """Return the check of a text that is parsed; without a noun, problems begin with the field."""

    def check(name: str, value: Any) -> list[str]:
        if not isinstance(value, str):
            return [f"{noun or name} {show(value)} is not valid: write it as {form}"]
        try:
            parse(value)
        except ValueError as error:
            return [str(error) if noun else f"{name} {error}"]
        return []

    return check


def _number(form: str, most: float, expected: str, kind: type = int) -> Check:
    """Return the check of a number from 1 on; a boolean is not a number."""

    def check(_: str, value: Any) -> list[str]:
        if type(value) in (int, kind) and 1 <= value <= most:
            return []
        return [f"{form.format(show(value))} is not valid: {expected}"]

    return check


def _items(fits: Callable[[Any], bool], expected: str) -> Check:
    """Return the check of a tuple and of each of its items."""

    def check(name: str, items: Any) -> list[str]:
        if not isinstance(items, tuple):
            return [f"{name} {show(items)} is not valid: write a tuple of {expected}"]
        if not items:
            return [f"{name} {IS_EMPTY} {expected}"]
        wrong = [item for item in items if not fits(item)]
        return [f"{name} holds {show(item)}, which is not valid: use {expected}" for item in wrong]

    return check


def _moment_with_time(text: str) -> None:
    if not times.has_time(text):
        raise ValueError(f"{text!r} names no time: write it as 'YYYY-MM-DD HH:MM'")
    times.moment(text)


def _is_date(value: Any) -> bool:
    # A datetime is a subclass of date, but cannot be compared with one.
    return type(value) is date


def _date(name: str, value: Any) -> list[str]:
    return [] if _is_date(value) else [f"{name} {show(value)} is not a date such as 2027-12-24"]


def _is_month_day(value: Any) -> bool:
    return value == "last" if isinstance(value, str) else type(value) is int and 1 <= value <= 31


_ZONE = _text(wall_clock.zone_named, "time zone", "'Europe/Berlin'")
_WINDOW = _text(times.window, "window", "'HH:MM-HH:MM'")
_MOMENT = _text(times.moment, "", "'YYYY-MM-DD HH:MM'")

_CHECKS: dict[str, Check] = {
    "expression": _text(cron.check, "cron expression", "a string of five fields"),
    "time": _text(times.time_of_day, "time of day", "'HH:MM' or 'HH:MM:SS'"),
    "days": _items(WEEKDAYS.__contains__, f"weekdays {', '.join(WEEKDAYS)}"),
    "weeks": _items(WEEKS.__contains__, ", ".join(WEEKS)),
    "months": _items(lambda month: type(month) is int and 1 <= month <= 12, "1 to 12"),
    "anchor": _date,
    "at": _text(_moment_with_time, "", "'YYYY-MM-DD HH:MM'"),
    "between": _WINDOW,
    "start": _MOMENT,
    "end": _MOMENT,
    "dates": _items(_is_date, "dates such as 2027-12-24"),
    "first": _date,
    "last": _date,
}
_CHECKS_OF_TYPES: dict[tuple[type, str], Check] = {
    (kinds.Every, "seconds"): _number(
        "every({} s)",
        kinds.DAY_SECONDS,
        "a step is a whole number of seconds, between one second and a day",
    ),
    (kinds.Spaced, "seconds"): _number(
        "spaced({} s)",
        kinds.LONGEST_SPACING_SECONDS,
        "write a number of seconds, between one second and ten years",
        float,
    ),
    (kinds.Daily, "every"): _number(
        "every={}", 3660, "write a whole number of days, from 1 to 3660"
    ),
    (kinds.Weekly, "every"): _number(
        "every={}", 520, "write a whole number of weeks, from 1 to 520"
    ),
    (kinds.Monthly, "days"): _items(_is_month_day, "numbers 1 to 31 or 'last'"),
}
