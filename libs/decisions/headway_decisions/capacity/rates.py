"""Rates: at most `count` runs begin in any period.

Starts are stored as a few bundles. A bundle counts until its last run is a whole period old, so no
period ever sees more starts than allowed. Bundles cost at most a sixtieth of the period.
"""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from headway_contract.fields import Rate
from msgspec import Struct, structs

from headway_decisions import wording

# The maximum number of bundles in a period.
_BUNDLES = 60

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "day": 86_400.0}
_WORDS = re.compile(
    r"^\s*(\d+)\s*(?:/|per)\s*(?:(\d+(?:\.\d+)?)\s*)?(second|minute|hour|day)s?\s*$"
)


class Bundle(Struct, frozen=True, kw_only=True):
    """Runs that began close to each other."""

    first_at: datetime
    last_at: datetime
    count: int


def parse_rate(text: str) -> Rate:
    """Parse a rate such as `100/minute` or `5/10 seconds`, or raise `ValueError`."""
    match = _WORDS.match(text)
    remedy = "write it like '100/minute' or '5/10 seconds'"
    if match is None:
        raise ValueError(f"{text!r} is not a rate: {remedy}")
    count, period = int(match[1]), float(match[2] or 1) * _SECONDS[match[3]]
    if not 1 <= count <= 1_000_000 or not 0 < period <= 366 * 86_400:
        raise ValueError(
            f"{text!r} is not a rate: use 1 to 1000000 runs in up to 366 days; {remedy}"
        )
    return Rate(count=count, period_seconds=period)


def rate_in_words(rate: Rate) -> str:
    """Format a rate so that `parse_rate` reads it."""
    return f"{rate.count}/{wording.duration(rate.period_seconds).removeprefix('1 ')}"


def room(rate: Rate, begun: Sequence[Bundle], now: datetime) -> int:
    """Return how many more may begin now."""
    counted = sum(bundle.count for bundle in _remembered(rate, begun, now))
    return max(0, rate.count - counted)


def frees_at(rate: Rate, begun: Sequence[Bundle], now: datetime) -> datetime | None:
    """Return when the next run may begin; `None` if it may begin now."""
    return None if room(rate, begun, now) > 0 else turn(rate, begun, 0, now)


def turn(rate: Rate, begun: Sequence[Bundle], ahead: int, now: datetime) -> datetime:
    """Return when a run may begin that has `ahead` others before it, if all begin at once."""
    remembered = _remembered(rate, begun, now)
    period = timedelta(seconds=rate.period_seconds)
    laps, place = divmod(ahead, rate.count)
    # Starts beyond a lowered rate leave no place.
    leavers = place + sum(bundle.count for bundle in remembered) - rate.count
    free_at = now
    for bundle in remembered:
        if leavers < 0:
            break
        free_at = bundle.last_at + period
        leavers -= bundle.count
    return free_at + period * laps


def begin(rate: Rate, begun: Sequence[Bundle], count: int, now: datetime) -> list[Bundle]:
    """Return the bundles after `count` more starts, without expired ones."""
    remembered = _remembered(rate, begun, now)
    if count <= 0:
        return remembered
    width = timedelta(seconds=rate.period_seconds / _BUNDLES)
    if remembered and now - remembered[-1].first_at < width:
        last = remembered.pop()
        return [*remembered, structs.replace(last, last_at=now, count=last.count + count)]
    return [*remembered, Bundle(first_at=now, last_at=now, count=count)]


def _remembered(rate: Rate, begun: Sequence[Bundle], now: datetime) -> list[Bundle]:
    """Return the bundles that still count, oldest first; times in the future become now."""
    period = timedelta(seconds=rate.period_seconds)
    bundles = [
        structs.replace(
            bundle, first_at=min(bundle.first_at, now), last_at=min(bundle.last_at, now)
        )
        for bundle in begun
    ]
    bundles.sort(key=lambda bundle: bundle.last_at)
    return [bundle for bundle in bundles if now - bundle.last_at < period]
