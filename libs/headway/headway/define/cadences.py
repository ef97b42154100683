"""Cadences as users write them: values for the builder, and decorators for a job.

`daily("03:15", tz="Europe/Berlin")` and `every(minutes=5)` are arguments of `App.schedule`, or
decorators of a function, which may have several. All take filters (`weekdays=`, `months=`,
`weeks=`, `between=`, `start=`, `end=`), a zone (`tz=`), `exclude=`, `jitter=` in seconds,
`misfire=`, `overlap=`, `enabled=`, and a `name=` that becomes part of the manifest's id. Unless a
cadence gives `days=` another meaning, it is the same as `weekdays=`.
"""

from datetime import date, datetime
from typing import Unpack, cast

from headway_contract.fitting import show
from headway_decisions.timing import cadence

from headway.define import calendar
from headway.define.keywords import check_keywords
from headway.define.when import DayOptions, PlainOptions, TimedOptions, WeekOptions, When, make_when


@check_keywords
def cron(expression: str, **options: Unpack[DayOptions]) -> When:
    """Fire when a cron expression matches the wall clock of the zone.

    Five fields (minute hour day month weekday), six with seconds first, or a name like `@daily`.
    """
    return make_when("cron", cadence.Cron(expression), options)


@check_keywords
def every(
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float | calendar.DaysGiven = None,
    at: calendar.TimeGiven | None = None,
    **options: Unpack[WeekOptions],
) -> When:
    """Fire on a wall-clock grid that starts at each midnight of the zone.

    A number of `days` counts from the `start` date, or from 2000-01-01, and fires `at` a time
    of day. Any other value of `days` is the filter `weekdays`, as in
    `every(minutes=5, days="weekdays")`.
    """
    problems: list[str] = []
    step = _step("every", problems, seconds=seconds, minutes=minutes, hours=hours)
    if not _is_number(days):
        if at is not None:
            problems.append("every(at=...) goes with days=: a grid within the day has no time")
        given = {**options, "days": days}
        # The checks of the timing report a step that is not a whole number.
        whole = int(step) if float(step).is_integer() else cast("int", step)
        return make_when("every", cadence.Every(whole), given, problems)
    if step:
        problems.append("every(days=...) takes no hours, minutes or seconds beside it")
    counted = cadence.Daily(
        time="00:00" if at is None else calendar.time_of_day(at),
        every=cast("int", days),
        anchor=_anchor(options.get("start")),
    )
    return make_when("every", counted, options, problems)


@check_keywords
def spaced(
    *,
    seconds: float = 0,
    minutes: float = 0,
    hours: float = 0,
    days: float | calendar.DaysGiven = None,
    **options: Unpack[WeekOptions],
) -> When:
    """Fire a fixed time after the last work has ended; a new manifest fires at once.

    A number of `days` is a distance, any other value a filter on weekdays.
    """
    given = {**options, "days": None if _is_number(days) else days}
    count = cast("float", days) if _is_number(days) else 0
    problems: list[str] = []
    step = _step("spaced", problems, seconds=seconds, minutes=minutes, hours=hours, days=count)
    return make_when("spaced", cadence.Spaced(float(step)), given, problems)


@check_keywords
def daily(at: calendar.TimeGiven, **options: Unpack[DayOptions]) -> When:
    """Fire once a day at a time such as "03:15"."""
    return make_when("daily", cadence.Daily(calendar.time_of_day(at)), options)


@check_keywords
def weekly(
    days: calendar.DaysGiven,
    at: calendar.TimeGiven,
    *,
    every: int = 1,
    **options: Unpack[WeekOptions],
) -> When:
    """Fire on weekdays at a time, in every nth week counted from that of the `start` date."""
    problems: list[str] = []
    chosen = calendar.weekdays(days, problems)
    anchor = _anchor(options.get("start")) if every != 1 else cadence.ANCHOR
    kept = cadence.Weekly(chosen, calendar.time_of_day(at), every, anchor)
    return make_when("weekly", kept, options, problems)


@check_keywords
def monthly(
    days: calendar.MonthDaysGiven, at: calendar.TimeGiven, **options: Unpack[WeekOptions]
) -> When:
    """Fire on days of the month, which may include `LAST`; skip a day that a month does not have.

    Every Friday the 13th is `monthly(13, "09:00", weekdays="fri")`.
    """
    problems: list[str] = []
    chosen = calendar.month_days(days, problems)
    kept = cadence.Monthly(chosen, calendar.time_of_day(at))
    return make_when("monthly", kept, options, problems)


@check_keywords
def monthly_dow(
    weeks: calendar.WeeksGiven,
    days: calendar.DaysGiven,
    at: calendar.TimeGiven,
    **options: Unpack[TimedOptions],
) -> When:
    """Fire on the first, second, third, fourth or last of a weekday in each month."""
    problems: list[str] = []
    chosen = calendar.weeks(weeks, problems), calendar.weekdays(days, problems)
    kept = cadence.MonthlyDow(*chosen, calendar.time_of_day(at))
    return make_when("monthly-dow", kept, options, problems)


@check_keywords
def once(at: str | datetime, **options: Unpack[DayOptions]) -> When:
    """Fire once, at a wall-clock time such as "2027-06-01 09:00"."""
    problems: list[str] = []
    kept = cadence.Once(calendar.wall_time(at, problems) or "")
    return make_when("once", kept, options, problems)


@check_keywords
def manual(**options: Unpack[PlainOptions]) -> When:
    """Fire only when triggered."""
    return make_when("manual", cadence.Manual(), options)


def _anchor(start: calendar.WallGiven) -> date:
    """Return the date that steps are counted from; the checks of the timing report a wrong one."""
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
    """Return a step in seconds; report a part that is not a number and return one second."""
    wrong = [
        f"{unit}={show(given)}"
        for unit, given in parts.items()
        if not _is_number(given) or abs(given) > _LARGEST
    ]
    if wrong:
        problems.append(f"{cadence_name}({', '.join(wrong)}): write a number")
        return 1
    return sum(given * _SECONDS_IN[unit] for unit, given in parts.items())
