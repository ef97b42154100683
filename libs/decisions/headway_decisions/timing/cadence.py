"""Cadences: when a manifest fires, without a zone.

A cadence uses the naive wall clock; `wall_clock` turns its times into instants. Two cadences use no
clock: `Spaced` counts from the end of its last work, and `Manual` never fires by itself.

When the clock repeats an hour, a cadence with `fires_in_repeated_hour` fires in both passings (it
fires in every hour); the others have a fixed time of day and fire in the first passing.
"""

from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, Protocol

from msgspec import Meta, Struct

from headway_decisions import wording
from headway_decisions.timing import cron
from headway_decisions.timing.times import WEEKDAYS as WEEKDAYS
from headway_decisions.timing.times import WEEKS as WEEKS
from headway_decisions.timing.times import Week as Week
from headway_decisions.timing.times import Weekday as Weekday
from headway_decisions.timing.times import (
    days_in_month,
    midnight,
    moment,
    months_from,
    second_of_day,
    time_of_day,
    weeks_of,
)

DAY_SECONDS = 86_400
LONGEST_SPACING_SECONDS = 10 * 366 * DAY_SECONDS
ANCHOR = date(2000, 1, 1)

# A day of the month; `last` is its last calendar day.
MonthDay = Annotated[int, Meta(ge=1, le=31)] | Literal["last"]


class Ticking(Protocol):
    """Anything with fire times on the naive wall clock."""

    @property
    def fires_in_repeated_hour(self) -> bool:
        """Whether it fires in both passings of a repeated hour."""

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return the first fire after a wall-clock time, or `None` within ten years."""


class Cron(Struct, frozen=True, tag="cron"):
    """Fires where a cron expression matches."""

    expression: str

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return the first fire strictly after a wall-clock time."""
        return cron.next_match(self.expression, wall)

    @property
    def fires_in_repeated_hour(self) -> bool:
        """Whether it fires in every hour of the day."""
        return cron.fires_every_hour(self.expression)

    def __str__(self) -> str:
        return f"cron {self.expression}"


class Every(Struct, frozen=True, tag="every"):
    """Fires on a grid counted from each midnight of the zone."""

    seconds: Annotated[int, Meta(ge=1, le=DAY_SECONDS)]

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return the first grid point strictly after a wall-clock time."""
        steps = second_of_day(wall) // self.seconds + 1
        # A step that does not divide the day restarts at midnight.
        second = min(steps * self.seconds, DAY_SECONDS)
        return midnight(wall.date()) + timedelta(seconds=second)

    @property
    def fires_in_repeated_hour(self) -> bool:
        """Whether its step is at most an hour."""
        return self.seconds <= 3600

    def __str__(self) -> str:
        return f"every {wording.duration(self.seconds).removeprefix('1 ')}"


class Daily(Struct, frozen=True, tag="daily", omit_defaults=True):
    """Fires at a time of day, every n days counted from the anchor."""

    time: str
    every: Annotated[int, Meta(ge=1, le=3660)] = 1
    anchor: date = ANCHOR
    fires_in_repeated_hour: ClassVar[bool] = False

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return the first fire strictly after a wall-clock time."""
        today = wall.date()
        ahead = -(today - self.anchor).days % self.every
        fire = _at(today + timedelta(days=ahead), self.time)
        return fire if fire > wall else fire + timedelta(days=self.every)

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
    fires_in_repeated_hour: ClassVar[bool] = False

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return the first fire strictly after a wall-clock time."""
        monday = _monday(wall.date())
        ahead = -((monday - _monday(self.anchor)).days // 7) % self.every
        this_time = monday + timedelta(weeks=ahead)
        # All fires of this week may be past.
        for week in (this_time, this_time + timedelta(weeks=self.every)):
            for number, name in enumerate(WEEKDAYS):
                fire = _at(week + timedelta(days=number), self.time)
                if name in self.days and fire > wall:
                    return fire
        return None

    def __str__(self) -> str:
        on = f"on {wording.weekdays(self.days)} at {self.time}"
        if self.every == 1:
            return f"weekly {on}"
        return f"every {self.every} weeks {on}, counted from {_monday(self.anchor)}"


class Monthly(Struct, frozen=True, tag="monthly", omit_defaults=True):
    """Fires on days of the month at a time; months without such a day are skipped."""

    days: tuple[MonthDay, ...]
    time: str
    fires_in_repeated_hour: ClassVar[bool] = False

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return the first fire strictly after a wall-clock time."""
        return _next_in_months(self._dates, self.time, wall)

    def _dates(self, year: int, month: int) -> Iterable[date]:
        last = days_in_month(year, month)
        numbers = {last if day == "last" else day for day in self.days}
        return [date(year, month, number) for number in sorted(numbers) if number <= last]

    def __str__(self) -> str:
        return f"monthly on the {wording.month_days(self.days)} at {self.time}"


class MonthlyDow(Struct, frozen=True, tag="monthly_dow", omit_defaults=True):
    """Fires on the first, second, third, fourth or last of a weekday in each month."""

    weeks: tuple[Week, ...]
    days: tuple[Weekday, ...]
    time: str
    fires_in_repeated_hour: ClassVar[bool] = False

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return the first fire strictly after a wall-clock time."""
        return _next_in_months(self._dates, self.time, wall)

    def _dates(self, year: int, month: int) -> Iterable[date]:
        return _weekdays_of_month(self.weeks, self.days, year, month)

    def __str__(self) -> str:
        which = wording.listed(self.weeks)
        return f"monthly on the {which} {wording.weekdays(self.days)} at {self.time}"


class Once(Struct, frozen=True, tag="once", omit_defaults=True):
    """Fires once, at a wall-clock time such as 2027-06-01 09:00."""

    at: str
    fires_in_repeated_hour: ClassVar[bool] = False

    def next_wall(self, wall: datetime) -> datetime | None:
        """Return its time, or `None` if it is past."""
        fire = moment(self.at)
        return fire if fire > wall else None

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
        return "only when asked for"


Cadence = Cron | Every | Daily | Weekly | Monthly | MonthlyDow | Once | Spaced | Manual
# Cadences with times on the wall clock.
Clocked = Cron | Every | Daily | Weekly | Monthly | MonthlyDow | Once


def _at(day: date, time: str) -> datetime:
    return datetime.combine(day, time_of_day(time))


def _monday(day: date) -> date:
    return day - timedelta(days=day.weekday())


@lru_cache(maxsize=4096)
def _weekdays_of_month(
    weeks: tuple[Week, ...], days: tuple[Weekday, ...], year: int, month: int
) -> tuple[date, ...]:
    dates = (date(year, month, day + 1) for day in range(days_in_month(year, month)))
    return tuple(
        day
        for day in dates
        if WEEKDAYS[day.weekday()] in days and any(week in weeks for week in weeks_of(day))
    )


def _next_in_months(
    dates: Callable[[int, int], Iterable[date]], time: str, wall: datetime
) -> datetime | None:
    """Return the first fire after a wall-clock time, given the dates of each month."""
    for year, month in months_from(wall.date()):
        for day in dates(year, month):
            fire = _at(day, time)
            if fire > wall:
                return fire
    return None
