"""Small charts, drawn by the server: numbers in, places on a canvas out. Pure."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from headway_console.pages.filters import TINT_OF, seconds
from headway_console.reading.figures import RunFigure
from headway_console.reading.overview import Throughput

_WIDTH, _HEIGHT = 600, 100
_GAP = 0.2


class Part(Struct, frozen=True, kw_only=True):
    """A piece of a bar."""

    y: float
    height: float
    tint: str


class Bar(Struct, frozen=True, kw_only=True):
    """One bar, with what it says on hover."""

    x: float
    title: str
    parts: list[Part]


class Bars(Struct, frozen=True, kw_only=True):
    """A row of bars; `most` is what a full one stands for."""

    width: int
    height: int
    step: float
    bar: float
    most: int
    bars: list[Bar]


class Dot(Struct, frozen=True, kw_only=True):
    """One run of a plot."""

    run: UUID
    x: float
    y: float
    tint: str
    title: str


class Dots(Struct, frozen=True, kw_only=True):
    """A plot of how long runs took; `most` is the top of it, in seconds."""

    width: int
    height: int
    most: float
    median: float
    median_y: float
    since: datetime
    until: datetime
    dots: list[Dot]


def throughput(stretches: Sequence[Throughput], zone: ZoneInfo) -> Bars:
    """What ended in each stretch, failures below; times are told in a zone."""
    most = max((one.completed + one.failed + one.cancelled for one in stretches), default=0)
    step = _WIDTH / max(1, len(stretches))
    return Bars(
        width=_WIDTH,
        height=_HEIGHT,
        step=round(step, 2),
        bar=round(step * (1 - _GAP), 2),
        most=most,
        bars=[
            Bar(x=round(index * step, 2), title=_told(one, zone), parts=_stack(one, most))
            for index, one in enumerate(stretches)
        ],
    )


def durations(figures: Sequence[RunFigure], zone: ZoneInfo) -> Dots | None:
    """How long runs took, over time; none if none has ended. Times are told in a zone."""
    ran = [(one, one.took_seconds) for one in figures if one.took_seconds is not None]
    if not ran:
        return None
    took = sorted(lasted for _, lasted in ran)
    most = max(took[-1], 0.001)
    since = min(one.created_at for one, _ in ran)
    until = max(one.created_at for one, _ in ran)
    whole = max((until - since).total_seconds(), 1.0)

    def y(value: float) -> float:
        return round(_HEIGHT - 4 - (_HEIGHT - 8) * value / most, 1)

    return Dots(
        width=_WIDTH,
        height=_HEIGHT,
        most=most,
        median=took[len(took) // 2],
        median_y=y(took[len(took) // 2]),
        since=since,
        until=until,
        dots=[
            Dot(
                run=one.run,
                x=round(6 + (_WIDTH - 12) * (one.created_at - since).total_seconds() / whole, 1),
                y=y(lasted),
                tint=TINT_OF.get(one.state, "plain"),
                title=f"{one.state} in {seconds(lasted)}, attempt {one.attempt}, "
                f"{one.created_at.astimezone(zone):%Y-%m-%d %H:%M:%S}",
            )
            for one, lasted in reversed(ran)
        ],
    )


def _stack(one: Throughput, most: int) -> list[Part]:
    """The parts of a bar, from the bottom up."""
    parts, top = [], float(_HEIGHT)
    for count, tint in ((one.failed, "bad"), (one.cancelled, "warn"), (one.completed, "good")):
        if count:
            # What is there is seen, however little it is.
            height = max(1.5, (_HEIGHT - 4) * count / most)
            top -= height
            parts.append(Part(y=round(max(top, 0), 2), height=round(height, 2), tint=tint))
    return parts


def _told(one: Throughput, zone: ZoneInfo) -> str:
    counts = f"{one.completed} completed, {one.failed} failed, {one.cancelled} cancelled"
    return f"from {one.at.astimezone(zone):%H:%M}: {counts}"
