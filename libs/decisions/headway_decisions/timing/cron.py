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


class _Fields(NamedTuple):
    """A parsed expression. Weekdays count from Sunday as 0, as in cron."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    months: tuple[int, ...]
    month_days: tuple[int, ...]
    last_day: bool
    nearest_weekdays: frozenset[int]
    weekdays: tuple[int, ...]
    nth_weekdays: frozenset[tuple[int, int | str]]
    either: bool

    def match(self, day: date) -> bool:
        """Return whether a day of one of the months matches."""
        last, weekday = days_in_month(day.year, day.month), day.isoweekday() % 7
        in_month = (
            day.day in self.month_days
            or (self.last_day and day.day == last)
            or any(day == _nearest_weekday(day, number) for number in self.nearest_weekdays)
        )
        in_week = weekday in self.weekdays
        if self.nth_weekdays:
            is_last = day.day + 7 > last
            in_week = (weekday, (day.day - 1) // 7 + 1) in self.nth_weekdays
            in_week = in_week or (is_last and (weekday, "l") in self.nth_weekdays)
        return (in_month or in_week) if self.either else (in_month and in_week)

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
    fields, day = _read(expression), wall.date()
    if day.month in fields.months and fields.match(day):
        at = fields.next_time(wall)
        if at is not None:
            return datetime.combine(day, at)
    day += timedelta(days=1)
    while day.year <= wall.year + SEARCH_YEARS:
        if day.month not in fields.months:
            day = first_of_next_month(day)
        elif fields.match(day):
            first = time(fields.hours[0], fields.minutes[0], fields.seconds[0])
            return datetime.combine(day, first)
        else:
            day += timedelta(days=1)
    return None


def fires_every_hour(expression: str) -> bool:
    """Return whether it fires in every hour: `*`, `*/1` and `0-23` do, `*/2` does not."""
    return len(_read(expression).hours) == 24


def check(expression: str) -> None:
    """Raise `InvalidCron` if an expression is not valid or has no match within ten years."""
    problem = _form_problem(expression.strip()) or _misread(expression.split())
    if problem is None and next_match(expression, _A_LEAP_YEAR - timedelta(seconds=1)) is None:
        problem = f"has no occurrence within {SEARCH_YEARS} years"
    if problem is not None:
        raise InvalidCron(f"cron expression {expression[:200]!r} {problem}")


def _form_problem(text: str) -> str | None:
    count = len(text.split())
    if len(text) > 200:
        return "is longer than 200 characters: write a shorter one"
    if text == "@reboot":
        return "has no time: use once() or 'headway trigger'"
    if text.startswith("@"):
        known = text in NICKNAMES
        return None if known else f"is not known: use one of {', '.join(NICKNAMES)}"
    if count not in (5, 6):
        form = "write five (minute hour day month weekday), or six with seconds first"
        return f"has {count} fields: {form}"
    return None


def _misread(fields: list[str]) -> str | None:
    """Return what croniter would accept but misinterpret, or `None`."""
    text = " ".join(fields)
    if _CHANCE.search(text):
        return "asks for a random or hashed time (R, H): write a time"
    if not text.isascii():
        return "is not valid: it contains characters other than ASCII"
    equal = _EQUAL_ENDS.search(text)
    if equal is not None:
        range_ = equal[0].strip(" ,")
        return f"is not valid: the range {range_} ends where it starts: write {equal[1]}"
    for field, last_values in zip(reversed(fields), _LAST_VALUES, strict=False):
        for item in field.lower().split(","):
            start, step, _ = item.partition("/")
            if step and start in last_values:
                return f"is not valid: {item} steps on from a field's last value: write {start}"
    nth = [bool(_NTH_WEEKDAY.search(item)) for item in fields[-1].split(",")]
    if any(nth) and not all(nth):
        return "is not valid: plain weekdays cannot be mixed with # or L: write two schedules"
    return None


@lru_cache(maxsize=16_384)
def _read(expression: str) -> _Fields:
    """Parse an expression with croniter."""
    expression = NICKNAMES.get(expression.strip(), expression)
    *seconds, minute, hour, day, month, weekday = expression.split()
    try:
        croniter.expand(f"{minute} {hour} {day} {month} {weekday}", strict=True)
        plain = croniter(f"{minute} {hour} {day} {month} {weekday}", 0)
        # As a minutes field: with six fields croniter accepts day 0 and refuses 7 as Sunday.
        fine = croniter(f"{seconds[0] if seconds else 0} * * * *", 0)
    except (CroniterBadCronError, ValueError, KeyError, AttributeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise InvalidCron(f"cron expression {expression!r} is not valid: {reason}") from error
    minutes, hours, month_days, months, weekdays = plain.expanded
    nearest = frozenset(plain.nearest_weekday)
    nth_weekdays = plain.nth_weekday_of_month.items()
    return _Fields(
        seconds=_values(fine.expanded[0], 0, 59),
        minutes=_values(minutes, 0, 59),
        hours=_values(hours, 0, 23),
        months=_values(months, 1, 12),
        month_days=() if nearest else _values(month_days, 1, 31),
        last_day="l" in month_days,
        nearest_weekdays=nearest,
        weekdays=_values(weekdays, 0, 6),
        nth_weekdays=frozenset((number, nth) for number, every in nth_weekdays for nth in every),
        either=not (day.startswith(_STARS) or weekday.startswith(_STARS)),
    )


def _values(field: list[int | str], lowest: int, highest: int) -> tuple[int, ...]:
    if "*" in field:
        return tuple(range(lowest, highest + 1))
    return tuple(sorted(value for value in field if isinstance(value, int)))


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
