"""Cron expressions on the naive wall clock. Only this module imports croniter.

croniter parses expressions. It is pinned exactly, because users rely on its interpretation. The
search for the next match is our own: croniter's takes fifty times as long, and it ignores one of
two day fields if one has `#`, `L` or `W`.

If both day fields are restricted, a day that matches either of them matches, as in Vixie cron. A
field that begins with a star, such as `*/2`, counts as unrestricted: then both must match.
"""

import re
from bisect import bisect_right
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple

from croniter import CroniterBadCronError, croniter

from headway_decisions.timing.times import days_in_month, first_of_next_month

SEARCH_YEARS = 10
# `@reboot` is missing because it has no time.
NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
# Extensions of croniter whose times are random.
_CHANCE = re.compile(r"(?:^|[\s,/-])[RrHh](?=$|[\s,/(-])")
# croniter parses 5-5 as the whole range, and also a step from the last value, as in 23/2.
# From the last field to the first.
_EQUAL_ENDS = re.compile(r"(?:^|[\s,])(\w+)-\1(?=$|[\s,/])", re.IGNORECASE)
_LAST_VALUES = (("6", "sat"), ("12", "dec"), ("31",), ("23",), ("59",), ("59",))
_STARS = ("*", "?")  # a day field that begins with one is not restricted
_NTH_WEEKDAY = re.compile(r"#|^[Ll]\d$")
_A_LEAP_YEAR = datetime(2024, 1, 1)  # noqa: DTZ001 - the naive wall clock, by design


class InvalidCron(ValueError):
    """A cron expression that is not valid, or that never fires."""


class _Days(NamedTuple):
    """The day fields. Weekdays count from Sunday as 0, as in cron."""

    months: frozenset[int]
    month_days: frozenset[int]
    last_day: bool
    nearest_weekdays: frozenset[int]
    weekdays: frozenset[int]
    nth_weekdays: frozenset[tuple[int, int | str]]
    either: bool

    def match(self, day: date) -> bool:
        last = days_in_month(day.year, day.month)
        in_month = (
            day.day in self.month_days
            or (self.last_day and day.day == last)
            or any(day == _nearest_weekday(day, number) for number in self.nearest_weekdays)
        )
        if self.either:
            return in_month or self._in_week(day)
        return in_month and self._in_week(day)

    def _in_week(self, day: date) -> bool:
        weekday = day.isoweekday() % 7
        if not self.nth_weekdays:
            return weekday in self.weekdays
        if (weekday, (day.day - 1) // 7 + 1) in self.nth_weekdays:
            return True
        is_last = day.day + 7 > days_in_month(day.year, day.month)
        return is_last and (weekday, "l") in self.nth_weekdays


class _Fields(NamedTuple):
    """A parsed expression."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: _Days

    def next_time(self, wall: datetime) -> time | None:
        """Return the next time on the same day, or `None`."""
        if wall.hour in self.hours:
            if wall.minute in self.minutes:
                second = _later(self.seconds, wall.second)
                if second is not None:
                    return time(wall.hour, wall.minute, second)
            minute = _later(self.minutes, wall.minute)
            if minute is not None:
                return time(wall.hour, minute, self.seconds[0])
        hour = _later(self.hours, wall.hour)
        return None if hour is None else time(hour, self.minutes[0], self.seconds[0])


def next_match(expression: str, wall: datetime) -> datetime | None:
    """Return the first match after a wall-clock time, or `None` within ten years."""
    fields = _read(expression)
    day = wall.date()
    if day.month in fields.days.months and fields.days.match(day):
        at = fields.next_time(wall)
        if at is not None:
            return datetime.combine(day, at)
    following = _next_day(fields.days, day)
    first = time(fields.hours[0], fields.minutes[0], fields.seconds[0])
    return None if following is None else datetime.combine(following, first)


def fires_every_hour(expression: str) -> bool:
    """Return whether it fires in every hour: `*`, `*/1` and `0-23` do, `*/2` does not."""
    return len(_read(expression).hours) == 24


def check(expression: str) -> None:
    """Raise `InvalidCron` if an expression is not valid or has no match within ten years."""
    if len(expression) > 200:
        raise InvalidCron("cron expression is longer than 200 characters: write a shorter one")
    name = expression.strip()
    if name == "@reboot":
        raise InvalidCron("cron expression '@reboot' has no time: use once() or 'headway trigger'")
    if name in NICKNAMES:
        return
    if name.startswith("@"):
        raise InvalidCron(
            f"cron expression {expression!r} is not known: use one of {', '.join(NICKNAMES)}"
        )
    fields = expression.split()
    if len(fields) not in (5, 6):
        raise InvalidCron(
            f"cron expression {expression!r} has {len(fields)} fields: "
            "write five (minute hour day month weekday), or six with seconds first"
        )
    if _CHANCE.search(expression):
        raise InvalidCron(
            f"cron expression {expression!r} asks for a random or hashed time (R, H): write a time"
        )
    complaint = _misread(fields)
    if complaint is not None:
        raise InvalidCron(f"cron expression {expression!r} is not valid: {complaint}")
    if next_match(expression, _A_LEAP_YEAR - timedelta(seconds=1)) is None:
        raise InvalidCron(
            f"cron expression {expression!r} has no occurrence within {SEARCH_YEARS} years"
        )


def _misread(fields: list[str]) -> str | None:
    """Return what croniter would accept but misinterpret, or `None`."""
    if not " ".join(fields).isascii():
        return "it contains characters other than ASCII"
    equal = _EQUAL_ENDS.search(" ".join(fields))
    if equal is not None:
        return f"the range {equal[0].strip(' ,')} ends where it starts: write {equal[1]}"
    for field, last_values in zip(reversed(fields), _LAST_VALUES, strict=False):
        for item in field.lower().split(","):
            start, step, _ = item.partition("/")
            if step and start in last_values:
                return f"{item} steps on from a field's last value: write {start}"
    nth = [bool(_NTH_WEEKDAY.search(item)) for item in fields[-1].split(",")]
    if any(nth) and not all(nth):
        return "plain weekdays cannot be mixed with # or L: write two schedules"
    return None


@lru_cache(maxsize=16_384)
def _read(expression: str) -> _Fields:
    """Parse an expression with croniter.

    Seconds are parsed as a minutes field: with six fields croniter accepts day 0 and refuses 7 as
    Sunday.
    """
    expression = NICKNAMES.get(expression.strip(), expression)
    *seconds, minute, hour, day, month, weekday = expression.split()
    try:
        croniter.expand(f"{minute} {hour} {day} {month} {weekday}", strict=True)
        plain = croniter(f"{minute} {hour} {day} {month} {weekday}", 0)
        fine = croniter(f"{seconds[0] if seconds else 0} * * * *", 0)
    except (CroniterBadCronError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise InvalidCron(f"cron expression {expression!r} is not valid: {reason}") from error
    minutes, hours, *_ = plain.expanded
    return _Fields(
        _values(fine.expanded[0], 0, 59),
        _values(minutes, 0, 59),
        _values(hours, 0, 23),
        _days(plain, either=not (day.startswith(_STARS) or weekday.startswith(_STARS))),
    )


def _days(plain: croniter, *, either: bool) -> _Days:
    _, _, month_days, months, weekdays = plain.expanded
    nearest = frozenset(plain.nearest_weekday)
    return _Days(
        months=frozenset(_values(months, 1, 12)),
        month_days=frozenset(() if nearest else _values(month_days, 1, 31)),
        last_day="l" in month_days,
        nearest_weekdays=nearest,
        weekdays=frozenset(_values(weekdays, 0, 6)),
        nth_weekdays=frozenset(
            (weekday, nth)
            for weekday, every_nth in plain.nth_weekday_of_month.items()
            for nth in every_nth
        ),
        either=either,
    )


def _values(field: list[int | str], lowest: int, highest: int) -> tuple[int, ...]:
    if "*" in field:
        return tuple(range(lowest, highest + 1))
    return tuple(sorted(value for value in field if isinstance(value, int)))


def _next_day(days: _Days, day: date) -> date | None:
    """Return the first matching day after a day, or `None`."""
    last_year = day.year + SEARCH_YEARS
    day += timedelta(days=1)
    while day.year <= last_year:
        if day.month not in days.months:
            day = first_of_next_month(day)
        elif days.match(day):
            return day
        else:
            day += timedelta(days=1)
    return None


def _later(values: tuple[int, ...], value: int) -> int | None:
    place = bisect_right(values, value)
    return values[place] if place < len(values) else None


def _nearest_weekday(day: date, number: int) -> date:
    """Return the day from Monday to Friday nearest to a number in the month of `day`."""
    last = days_in_month(day.year, day.month)
    wanted = day.replace(day=min(number, last))
    if wanted.weekday() == 5:
        return wanted + timedelta(days=-1 if wanted.day > 1 else 2)
    if wanted.weekday() == 6:
        return wanted + timedelta(days=1 if wanted.day < last else -2)
    return wanted
