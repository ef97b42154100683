"""Cadences: when a manifest fires, without a zone.

A cadence uses the naive wall clock; `wall_clock` turns its times into instants. Two cadences use no
clock: `Spaced` counts from the end of its last work, and `Manual` never fires by itself.
"""

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct

from headway_decisions import wording
from headway_decisions.timing import cron, times
from headway_decisions.timing.times import WEEKDAYS, Week, Weekday

DAY_SECONDS = 86_400
LONGEST_SPACING_SECONDS = 10 * 366 * DAY_SECONDS
ANCHOR = date(2000, 1, 1)

# A day of the month; `last` is its last calendar day.
MonthDay = Annotated[int, Meta(ge=1, le=31)] | Literal["last"]


class Cron(Struct, frozen=True, tag="cron"):
    """Fires where a cron expression matches."""

    expression: str

    def __str__(self) -> str:
        return f"cron {self.expression}"


class Every(Struct, frozen=True, tag="every"):
    """Fires on a grid counted from each midnight of the zone."""

    seconds: Annotated[int, Meta(ge=1, le=DAY_SECONDS)]

    def __str__(self) -> str:
        return f"every {wording.duration(self.seconds).removeprefix('1 ')}"


class Daily(Struct, frozen=True, tag="daily", omit_defaults=True):
    """Fires at a time of day, every n days counted from the anchor."""

    time: str
    every: Annotated[int, Meta(ge=1, le=3660)] = 1
    anchor: date = ANCHOR

    def __str__(self) -> str:
        if self.every == 1:
            return f"daily at {self.time}"
        return f"every {self.every} days at {self.time}, counted from {self.anchor}"


class Weekly(Struct, frozen=True, tag="weekly", omit_defaults=True):
    """Fires on weekdays at a time, every n weeks counted from the anchor's Monday."""

    days: tuple[Weekday, ...]
    time: str
    every: Annotated[int, Meta(ge=1, le=520)] = 1
    anchor: date = ANCHOR

    def __str__(self) -> str:
        on = f"on {wording.weekdays(self.days)} at {self.time}"
        if self.every == 1:
            return f"weekly {on}"
        return f"every {self.every} weeks {on}, counted from {_monday(self.anchor)}"


class Monthly(Struct, frozen=True, tag="monthly", omit_defaults=True):
    """Fires on days of the month at a time; months without such a day are skipped."""

    days: tuple[MonthDay, ...]
    time: str

    def __str__(self) -> str:
        return f"monthly on the {wording.month_days(self.days)} at {self.time}"


class MonthlyDow(Struct, frozen=True, tag="monthly_dow", omit_defaults=True):
    """Fires on the first, second, third, fourth or last of a weekday in each month."""

    weeks: tuple[Week, ...]
    days: tuple[Weekday, ...]
    time: str

    def __str__(self) -> str:
        which = wording.listed(self.weeks)
        return f"monthly on the {which} {wording.weekdays(self.days)} at {self.time}"


class Once(Struct, frozen=True, tag="once", omit_defaults=True):
    """Fires once, at a wall-clock time such as 2027-06-01 09:00."""

    at: str

    def __str__(self) -> str:
        return f"once at {self.at}"


class Spaced(Struct, frozen=True, tag="spaced", omit_defaults=True):
    """Fires a fixed time after its last work has ended; a new one fires at once."""

    seconds: Annotated[float, Meta(ge=1, le=LONGEST_SPACING_SECONDS)]

    def __str__(self) -> str:
        return f"{wording.duration(self.seconds)} after its last work has ended"


class Manual(Struct, frozen=True, tag="manual", omit_defaults=True):
    """Fires only when triggered or activated."""

    def __str__(self) -> str:
        return "only when triggered"


Cadence = Cron | Every | Daily | Weekly | Monthly | MonthlyDow | Once | Spaced | Manual
# Cadences with times on the wall clock.
Clocked = Cron | Every | Daily | Weekly | Monthly | MonthlyDow | Once


def fires_in_repeated_hour(cadence: Clocked) -> bool:
    """Return whether a cadence fires in every hour, and so in both passings of a repeated one."""
    match cadence:
        case Cron(expression):
            return cron.fires_every_hour(expression)
        case Every(seconds):
            return seconds <= 3600
    return False


def next_wall(cadence: Clocked, wall: datetime) -> datetime | None:
    """Return the first fire after a wall-clock time, or `None` within ten years."""
    match cadence:
        case Cron(expression):
            return cron.next_match(expression, wall)
        case Every(seconds):
            # A step that does not divide the day restarts at midnight.
            second = min((times.second_of_day(wall) // seconds + 1) * seconds, DAY_SECONDS)
            return times.midnight(wall.date()) + timedelta(seconds=second)
        case Once(at):
            fires = iter([times.moment(at)])
        case _:
            time = times.time_of_day(cadence.time)
            fires = (datetime.combine(day, time) for day in _dates(cadence, wall.date()))
    return next((fire for fire in fires if fire > wall), None)


def _dates(cadence: Daily | Weekly | Monthly | MonthlyDow, today: date) -> Iterator[date]:
    """Yield dates in order: at least the next one, and the one after it, as today may be past."""
    match cadence:
        case Daily(_, every, anchor):
            ahead = -(today - anchor).days % every
            yield today + timedelta(days=ahead)
            yield today + timedelta(days=ahead + every)
        case Weekly(days, _, every, anchor):
            monday = _monday(today)
            ahead = -((monday - _monday(anchor)).days // 7) % every
            for week in (ahead, ahead + every):
                for number, name in enumerate(WEEKDAYS):
                    if name in days:
                        yield monday + timedelta(weeks=week, days=number)
        case Monthly() | MonthlyDow():
            for count in range(today.month - 1, today.month + 12):
                year, month = today.year + count // 12, count % 12 + 1
                yield from _dates_of_month(cadence, year, month)


@lru_cache(maxsize=4096)
def _dates_of_month(cadence: Monthly | MonthlyDow, year: int, month: int) -> tuple[date, ...]:
    last = times.days_in_month(year, month)
    dates = (date(year, month, number + 1) for number in range(last))
    match cadence:
        case Monthly(days):
            numbers = {last if day == "last" else day for day in days}
            return tuple(day for day in dates if day.day in numbers)
        case MonthlyDow(weeks, days):
            return tuple(
                day
                for day in dates
                if WEEKDAYS[day.weekday()] in days and times.is_in_weeks(day, weeks)
            )


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())
