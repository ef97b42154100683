"""Ages as people say them: 45s, 30m, 2h, 3d."""

import re
from datetime import datetime, timedelta

import click

_AGE = re.compile(r"(\d{1,7}(?:\.\d+)?)\s*([smhdw])", re.IGNORECASE)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Age(click.ParamType[timedelta]):
    """A span of time with its unit."""

    name = "age"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read it, or say how one is written."""
        age = read_age(str(value))
        if age is None:
            self.fail(f"{value!r} is no age: write 45s, 30m, 2h, 3d or 1w", param, ctx)
        return age


def read_age(text: str) -> timedelta | None:
    """Read a span of time with its unit; `None` if it is written in another way."""
    match = _AGE.fullmatch(text.strip())
    return None if match is None else timedelta(**{_UNITS[match[2].lower()]: float(match[1])})


def told(since: datetime, now: datetime) -> str:
    """How long ago something was, in its two largest units."""
    seconds = max(0, int((now - since).total_seconds()))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds >= length or (unit == "s" and not parts):
            parts.append(f"{seconds // length}{unit}")
            seconds %= length
    return "".join(parts[:2])
