"""Times, durations, weekdays, counts and lists in words."""

from collections.abc import Iterable
from datetime import datetime

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_WEEKDAY_NAMES = {name[:3].lower(): name for name in _WEEKDAYS}
# Not those of the standard library, which depend on the locale.
_MONTH_NAMES = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


def utc(at: datetime) -> str:
    """Format a time in UTC, to the second."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def duration(seconds: float) -> str:
    """Format a duration in its largest unit: "1 hour", "90 minutes"."""
    for size, unit in _UNITS:
        count = seconds / size
        if count == int(count):
            return counted(int(count), unit)
    return f"{seconds} seconds"


def counted(number: int, noun: str) -> str:
    """Format a number of things, with the noun in its plural where it needs one."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(items: Iterable[object], word: str = "and") -> str:
    """Join items: "one, two and three"."""
    *rest, last = (str(item) for item in items)
    return f"{', '.join(rest)} {word} {last}" if rest else last


def weekdays(days: Iterable[str], word: str = "and") -> str:
    """Join the full names of weekdays."""
    return listed([_WEEKDAY_NAMES.get(day, day) for day in days], word)


def months(numbers: Iterable[int]) -> str:
    """Join the names of months."""
    return listed(_MONTH_NAMES[number - 1] for number in numbers)


def month_days(days: Iterable[int | str]) -> str:
    """Join days of the month: "1st, 15th and last day"."""
    special = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
    named = [day if day == "last" else f"{day}{special.get(int(day), 'th')}" for day in days]
    return f"{listed(named)} day"
