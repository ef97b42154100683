"""Names of cadences: the part of a decorated job's manifest id that tells them apart.

A name depends on its own cadence only: not on the order of decorators, and not on others
beside it, so that a second cadence never renames the first. It carries the cadence and the
filters on days, weeks, months and the time of day. It leaves out what may change while
operators' settings and history should stay: the zone, the bounds in time (`start`, `end`),
exclusions, jitter and policies. Two cadences that differ only in those ask for a `name=`.
"""

from typing import assert_never

from headway_decisions.timing.cadence import (
    WEEKDAYS,
    Cadence,
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
from headway_decisions.timing.calendar import Filters
from headway_decisions.timing.timing import Timing

from headway.define.calendar import Months

_CRON_WORDS = {"*": "any", "/": "per", ",": "and", "#": "nth", "?": "any", "@": ""}
_UNITS = ((86_400, "d"), (3600, "h"), (60, "m"))
_MONTH_NAMES = [str(month.name).lower() for month in Months]


def name_of(timing: Timing) -> str:
    """The name of a cadence with its filters."""
    return "-".join([*_cadence_words(timing.cadence), *_filter_words(timing.filters)])


def _cadence_words(cadence: Cadence) -> list[str]:
    match cadence:
        case Cron(expression):
            return ["cron", _cron_word(expression)]
        case Every(seconds):
            return ["every", _step(seconds, units=_UNITS[1:])]
        case Daily(time, days):
            step = f"{days}d".replace(".", "_")
            counted = ["every", step, *([] if time == "00:00" else [_digits(time)])]
            return ["daily", _digits(time)] if days == 1 else counted
        case Weekly(days, time, weeks):
            return ["weekly", *days, _digits(time), *([] if weeks == 1 else [f"every-{weeks}"])]
        case Monthly(days, time):
            words = [f"{day:02}" if isinstance(day, int) else day for day in days]
            return ["monthly", *words, _digits(time)]
        case MonthlyDow(weeks, days, time):
            return ["monthly-dow", *weeks, *days, _digits(time)]
        case Once(at):
            return ["once", _digits(at)]
        case Spaced(seconds):
            return ["spaced", _step(seconds, units=_UNITS)]
        case Manual():
            return ["manual"]
        case _:
            assert_never(cadence)


def _filter_words(filters: Filters) -> list[str]:
    shorthands = {WEEKDAYS[:5]: ["weekdays"], WEEKDAYS[5:]: ["weekends"]}
    words = list(shorthands.get(filters.days, filters.days))
    words += filters.weeks
    words += [_MONTH_NAMES[month - 1] for month in filters.months]
    if filters.between:
        words.append(str(filters.between).replace(":", "").replace(" ", ""))
    return words


def _cron_word(expression: str) -> str:
    text = "_".join(str(expression).split())
    return "".join(_CRON_WORDS.get(letter, letter) for letter in text)


def _digits(moment: str) -> str:
    """A time such as 2027-06-01 09:00, written as an id may be."""
    return str(moment).replace(":", "-").replace(" ", "-").replace("T", "-")


def _step(seconds: float, *, units: tuple[tuple[int, str], ...]) -> str:
    for size, unit in units:
        if seconds and seconds % size == 0:
            return f"{seconds // size:.0f}{unit}"
    whole = float(seconds).is_integer()
    return f"{seconds:.0f}s" if whole else f"{seconds}s".replace(".", "_")
