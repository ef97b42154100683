"""Cron expressions on the naive wall clock. The one module that knows croniter.

croniter is pinned exactly, because its reading of an expression is part of what users
rely on; zones and DST are resolved by `wall_clock`, not by croniter.
"""

import re
from datetime import datetime, timedelta
from functools import lru_cache

from croniter import CroniterBadCronError, CroniterBadDateError, croniter

SEARCH_YEARS = 10
# croniter's own extensions, whose times would differ at every look.
_CHANCE = re.compile(r"(?:^|[\s,/-])[RrHh](?=$|[\s,/(-])")
_A_LEAP_YEAR = datetime(2024, 1, 1)  # noqa: DTZ001 - the naive wall clock, by design


class InvalidCron(ValueError):
    """A cron expression that cannot be read, or that never fires."""


def next_match(expression: str, wall: datetime) -> datetime | None:
    """The first match strictly after a naive wall-clock time, if there is any within years."""
    fields = expression.split()
    try:
        moments = croniter(
            expression,
            wall.replace(microsecond=0),
            second_at_beginning=len(fields) == 6,
            max_years_between_matches=SEARCH_YEARS,
        )
        match: datetime = moments.get_next(datetime)
    except CroniterBadDateError:
        return None
    return match


@lru_cache(maxsize=4096)
def has_wildcard_hour(expression: str) -> bool:
    """Whether the expression fires in every hour, so also in both passings of a repeated one."""
    fields = expression.split()
    return fields[-4] == "*"


def check(expression: str) -> None:
    """Refuse an expression that cannot be read or has no occurrence within ten years."""
    fields = expression.split() if isinstance(expression, str) else []
    if len(fields) not in (5, 6):
        raise InvalidCron(
            f"cron expression {expression!r} has {len(fields)} fields: "
            "write five (minute hour day month weekday), or six with seconds first"
        )
    if len(expression) > 200:
        raise InvalidCron("cron expression is longer than 200 characters")
    if _CHANCE.search(expression):
        raise InvalidCron(
            f"cron expression {expression!r} asks for a random or hashed time (R, H): write a time"
        )
    try:
        croniter.expand(expression, second_at_beginning=len(fields) == 6, strict=True)
        found = next_match(expression, _A_LEAP_YEAR - timedelta(seconds=1))
    except (CroniterBadCronError, ValueError, KeyError, AttributeError) as error:
        raise InvalidCron(f"cron expression {expression!r} is not valid: {error}") from error
    if found is None:
        raise InvalidCron(
            f"cron expression {expression!r} has no occurrence within {SEARCH_YEARS} years"
        )
