"""Layout of small charts; pure functions from numbers to coordinates."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from headway_console.pages.filters import TINT_OF, seconds
from headway_console.reading.occurrences import RunFigure

WIDTH, HEIGHT = 600, 100


class Dot(Struct, frozen=True, kw_only=True):
    """One run in a plot."""

    run: UUID
    x: float
    y: float
    tint: str
    title: str


class Dots(Struct, frozen=True, kw_only=True):
    """A plot of durations; `most` is its top, in seconds."""

    most: float
    median: float
    median_y: float
    since: datetime
    until: datetime
    dots: list[Dot]
    width: int = WIDTH
    height: int = HEIGHT


def durations(figures: Sequence[RunFigure], zone: ZoneInfo) -> Dots | None:
    """Draw durations over time; returns `None` if no run has ended."""
    ran = [(run, run.took_seconds) for run in figures if run.took_seconds is not None]
    if not ran:
        return None
    took = sorted(duration for _, duration in ran)
    most, median = max(took[-1], 0.001), took[len(took) // 2]
    since = min(run.created_at for run, _ in ran)
    until = max(run.created_at for run, _ in ran)
    whole = max((until - since).total_seconds(), 1.0)

    def y(value: float) -> float:
        return round(HEIGHT - 4 - (HEIGHT - 8) * value / most, 1)

    dots = [
        Dot(
            run=run.run,
            x=round(6 + (WIDTH - 12) * (run.created_at - since).total_seconds() / whole, 1),
            y=y(duration),
            tint=TINT_OF.get(run.state, "plain"),
            title=f"{run.state} in {seconds(duration)}, attempt {run.attempt}, "
            f"{run.created_at.astimezone(zone):%Y-%m-%d %H:%M:%S}",
        )
        for run, duration in reversed(ran)
    ]
    return Dots(most=most, median=median, median_y=y(median), since=since, until=until, dots=dots)
