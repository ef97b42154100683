"""Cadences as users write them: values for the builder, and decorators for a job.

`daily("03:15", tz="Europe/Berlin")` and `every(minutes=5)` can be handed to `App.schedule`
or put over a function, several of them if need be. All take filters (`weekdays=`, `months=`,
`weeks=`, `between=`, `start=`, `end=`), a zone (`tz=`), `exclude=`, `jitter=` in seconds,
`misfire=`, `overlap=`, `enabled=`, and a `name=` that becomes part of the manifest's id. Where
`days=` says nothing else it is the same as `weekdays=`.
"""

from datetime import date, datetime
from typing import Unpack, cast

from headway_contract.fitting import show
from headway_decisions.timing import cadence

from headway.define import calendar
from headway.define.when import (
    DayOptions,
    PlainOptions,
    TimedOptions,
    WeekOptions,
    When,
    make_when,
    refuse_unknown,
)

__all__ = [
    "When",
    "cron",
    "daily",
    "every",
    "manual",
    "monthly",
    "monthly_dow",
    "once",
    "spaced",
    "weekly",
]


def cron(expression: str, **options: Unpack[DayOptions]) -> When:
    """Fire where a cron expression matches the wall clock of the zone.

    Five fields (minute hour day month weekday), six with seconds first, or a name such as
    `@daily`.
    """
    refuse_unknown("cron", options, DayOptions)
    return make_when(cadence.Cron(expression), options, [])


def every(
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float | calendar.DaysGiven = None,
    at: calendar.TimeGiven | None = None,
    **options: Unpack[WeekOptions],
) -> When:
    """Fire on a wall-clock grid that is counted from each midnight of the zone.

    A number of `days` counts from the `start` date, or from 2000-01-01, and fires `at` a time
    of day; `weekdays` narrows it. Anything else in `days` is that filter, too, as in
    `every(minutes=5, days="weekdays")`.
    """
    refuse_unknown("every", options, WeekOptions)
    problems: list[str] = []
    step = _step("every", problems, seconds=seconds, minutes=minutes, hours=hours)
    if not _is_number(days):
        if at is not None:
            problems.append("every(at=...) goes with days=: a grid within the day has no time")
        return make_when(cadence.Every(_whole(step)), {**options, "days": days}, problems)
    if step:
        problems.append("every(days=...) takes no hours, minutes or seconds beside it")
    counted = cadence.Daily(
        time="00:00" if at is None else calendar.time_of_day(at),
        every=cast("int", days),
        anchor=_anchor(options.get("start")),
    )
    return make_when(counted, options, problems)


def spaced(
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float | calendar.DaysGiven = None,
    **options: Unpack[WeekOptions],
) -> When:
    """Fire so long after the last work has ended; a new one fires at once.

    A number of `days` is a distance, anything else in it a filter on weekdays.
    """
    refuse_unknown("spaced", options, WeekOptions)
    filtered = None if _is_number(days) else days
    count = cast("float", days) if _is_number(days) else 0
    problems: list[str] = []
    step = _step("spaced", problems, seconds=seconds, minutes=minutes, hours=hours, days=count)
    return make_when(cadence.Spaced(float(step)), {**options, "days": filtered}, problems)


def daily(at: calendar.TimeGiven, **options: Unpack[DayOptions]) -> When:
    """Fire once a day at a time such as "03:15"."""
    refuse_unknown("daily", options, DayOptions)
    return make_when(cadence.Daily(calendar.time_of_day(at)), options, [])


def weekly(
    days: calendar.DaysGiven,
    at: calendar.TimeGiven,
    *,
    every: int = 1,
    **options: Unpack[WeekOptions],
) -> When:
    """Fire on weekdays at a time, every so many weeks counted from that of the `start` date."""
    refuse_unknown("weekly", options, WeekOptions)
    problems: list[str] = []
    chosen = calendar.weekdays(days, problems)
    anchor = _anchor(options.get("start")) if every != 1 else cadence.ANCHOR
    kept = cadence.Weekly(chosen, calendar.time_of_day(at), every, anchor)
    return make_when(kept, options, problems)


def monthly(
    days: calendar.MonthDaysGiven, at: calendar.TimeGiven, **options: Unpack[WeekOptions]
) -> When:
    """Fire on days of the month, `LAST` among them; a day that a month lacks is passed over.

    The 13th, if it is a Friday, is `monthly(13, "09:00", weekdays="fri")`.
    """
    refuse_unknown("monthly", options, WeekOptions)
    problems: list[str] = []
    chosen = calendar.month_days(days, problems)
    return make_when(cadence.Monthly(chosen, calendar.time_of_day(at)), options, problems)


def monthly_dow(
    weeks: calendar.WeeksGiven,
    days: calendar.DaysGiven,
    at: calendar.TimeGiven,
    **options: Unpack[TimedOptions],
) -> When:
    """Fire on the first, second, third, fourth or last of a weekday in each month."""
    refuse_unknown("monthly_dow", options, TimedOptions)
    problems: list[str] = []
    kept = cadence.MonthlyDow(
        calendar.weeks(weeks, problems),
        calendar.weekdays(days, problems),
        calendar.time_of_day(at),
    )
    return make_when(kept, options, problems)


def once(at: str | datetime, **options: Unpack[DayOptions]) -> When:
    """Fire once, at a wall-clock time such as "2027-06-01 09:00"."""
    refuse_unknown("once", options, DayOptions)
    problems: list[str] = []
    return make_when(cadence.Once(calendar.wall_time(at, problems) or ""), options, problems)


def manual(**options: Unpack[PlainOptions]) -> When:
    """Fire only when somebody asks for it."""
    refuse_unknown("manual", options, PlainOptions)
    return make_when(cadence.Manual(), options, [])


def _whole(step: float) -> int:
    """A whole number as one; anything else stays, and is told with all other problems."""
    return int(step) if float(step).is_integer() else cast("int", step)


def _anchor(start: calendar.WallGiven) -> date:
    """The date that steps are counted from; a start that is no date is told elsewhere."""
    try:
        return date.fromisoformat(str(start)[:10])
    except ValueError:
        return cadence.ANCHOR


def _is_number(given: object) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


_SECONDS_IN = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400}


# Far beyond any step, and within what floats can count.
_LARGEST = 10**12


def _step(cadence_name: str, problems: list[str], **parts: float) -> float:
    """A step in seconds; a part that is no number is a problem, and stands for a second."""
    wrong = [
        f"{unit}={show(given)}"
        for unit, given in parts.items()
        if not _is_number(given) or abs(given) > _LARGEST
    ]
    if wrong:
        problems.append(f"{cadence_name}({', '.join(wrong)}): write a number")
        return 1
    return sum(given * _SECONDS_IN[unit] for unit, given in parts.items())
