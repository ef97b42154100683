"""Layout of small charts; pure functions from numbers to coordinates."""

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from msgspec import Struct

from headway_console.reading.system import Throughput

WIDTH, HEIGHT = 600, 100
_GAP = 0.2


class Bar(Struct, frozen=True, kw_only=True):
    """One bar, with its tooltip; a part has a tint, its top and its height."""

    x: float
    title: str
    parts: list[tuple[str, float, float]]


class Bars(Struct, frozen=True, kw_only=True):
    """A bar chart; `most` is the value of a full bar."""

    step: float
    bar: float
    most: int
    bars: list[Bar]
    width: int = WIDTH
    height: int = HEIGHT


def throughput(slots: Sequence[Throughput], zone: ZoneInfo) -> Bars:
    """Draw the runs that ended in each time slot, failures below."""
    most = max((slot.completed + slot.failed + slot.cancelled for slot in slots), default=0)
    step = WIDTH / max(1, len(slots))
    bars = []
    for index, slot in enumerate(slots):
        counts = f"{slot.completed} completed, {slot.failed} failed, {slot.cancelled} cancelled"
        title = f"from {slot.at.astimezone(zone):%H:%M}: {counts}"
        bars.append(Bar(x=round(index * step, 2), title=title, parts=_stack(slot, most)))
    return Bars(step=round(step, 2), bar=round(step * (1 - _GAP), 2), most=most, bars=bars)


def _stack(slot: Throughput, most: int) -> list[tuple[str, float, float]]:
    """Return the segments of a bar, from the bottom up."""
    parts, top = [], float(HEIGHT)
    for count, tint in ((slot.failed, "bad"), (slot.cancelled, "warn"), (slot.completed, "good")):
        if count:
            # A small count stays visible.
            height = max(1.5, (HEIGHT - 4) * count / most)
            top -= height
            parts.append((tint, round(max(top, 0), 2), round(height, 2)))
    return parts
