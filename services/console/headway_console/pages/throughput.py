"""Layout of the chart of ended runs; pure.

Places along the time axis are percentages, so the chart is as wide as its page and its text keeps
its size.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from msgspec import Struct

from headway_console.pages.filters import count, query
from headway_console.reading.system import Throughput

HEIGHT, _BASE, _TOP = 240, 216, 10
_GAP = 0.2
_TICKS = 4
# Distances of labels on the time axis, for the longest time that they suit.
_LABELS = (
    (timedelta(hours=2), timedelta(minutes=10)),
    (timedelta(hours=6), timedelta(minutes=30)),
    (timedelta(days=2), timedelta(hours=4)),
)
_STATES = (("failed", "bad"), ("cancelled", "warn"), ("completed", "good"))


class Bar(Struct, frozen=True, kw_only=True):
    """One bar with its runs; a part has a tint, its top and its height."""

    x: float
    title: str
    to: str
    parts: list[tuple[str, float, float]]


class Chart(Struct, frozen=True, kw_only=True):
    """A bar chart; a tick has a place and a label."""

    step: float
    bar: float
    bars: list[Bar]
    counts: list[tuple[float, str]]
    times: list[tuple[float, str]]
    height: int = HEIGHT
    base: int = _BASE


def draw(slots: Sequence[Throughput], *, width: timedelta, zone: ZoneInfo) -> Chart:
    """Draw the runs that ended in each time slot, failures below."""
    step = 100 / max(1, len(slots))
    tick = _nice(max((_ended(slot) for slot in slots), default=0) / _TICKS)
    top = tick * _TICKS
    bars = [
        Bar(
            x=round(index * step, 3),
            title=f"{_span(slot, width, zone)}: {_counts(slot)}",
            to=runs_between(slot.at, slot.at + width, zone) if _ended(slot) else "",
            parts=_stack(slot, top),
        )
        for index, slot in enumerate(slots)
    ]
    heights = [(index * tick, _BASE - (_BASE - _TOP) * index / _TICKS) for index in range(5)]
    return Chart(
        step=round(step, 3),
        bar=round(step * (1 - _GAP), 3),
        bars=bars,
        counts=[(round(y, 1), count(value)) for value, y in heights],
        times=_times(slots, width, zone) if slots else [],
    )


def runs_between(since: datetime, before: datetime, zone: ZoneInfo, state: str = "") -> str:
    """Return the list of runs that ended in a range of time."""
    local = {
        name: f"{moment.astimezone(zone):%Y-%m-%dT%H:%M}"
        for name, moment in (("ended_since", since), ("ended_before", before))
    }
    return "/runs" + query({"state": state, **local, "zone": zone.key})


def _ended(slot: Throughput) -> int:
    return slot.completed + slot.failed + slot.cancelled


def _counts(slot: Throughput) -> str:
    return f"{slot.completed} completed, {slot.failed} failed, {slot.cancelled} cancelled"


def _span(slot: Throughput, width: timedelta, zone: ZoneInfo) -> str:
    since, until = slot.at.astimezone(zone), (slot.at + width).astimezone(zone)
    return f"{since:%H:%M} to {until:%H:%M}"


def _nice(least: float) -> int:
    """Round up to 1, 2 or 5 times a power of ten."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= least:
                return factor * power
        power *= 10


def _stack(slot: Throughput, top: int) -> list[tuple[str, float, float]]:
    """Return the segments of a bar, from the bottom up."""
    parts, y = [], float(_BASE)
    for state, tint in _STATES:
        if number := getattr(slot, state):
            # A small count stays visible.
            height = max(1.5, (_BASE - _TOP) * number / top)
            y -= height
            parts.append((tint, round(max(y, 0), 2), round(height, 2)))
    return parts


def _times(
    slots: Sequence[Throughput], width: timedelta, zone: ZoneInfo
) -> list[tuple[float, str]]:
    """Return labels at round times of the zone."""
    since, until = slots[0].at, slots[-1].at + width
    apart = next((apart for most, apart in _LABELS if until - since <= most), _LABELS[-1][1])
    midnight = since.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
    ticks = []
    for index in range(int((until - since) / apart) + int(timedelta(days=1) / apart) + 2):
        at = (midnight.replace(tzinfo=None) + index * apart).replace(tzinfo=zone)
        if since <= at <= until:
            ticks.append((round(100 * ((at - since) / (until - since)), 2), f"{at:%H:%M}"))
    return ticks
