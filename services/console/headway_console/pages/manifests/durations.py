"""Durations of the latest runs of a manifest: percentiles, and a bar for each run. Pure."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID
from zoneinfo import ZoneInfo

from msgspec import Struct

from headway_console.pages.filters import TINT_OF, seconds
from headway_console.reading.occurrences import RunFigure

WIDTH, HEIGHT = 600, 100
_DRAWN = 60
_GAP = 0.25
# A short run stays visible.
_LOWEST = 2.0


class Bar(Struct, frozen=True, kw_only=True):
    """One run, with its tooltip."""

    run: UUID
    x: float
    y: float
    height: float
    tint: str
    title: str


class Durations(Struct, frozen=True, kw_only=True):
    """Percentiles of `runs` durations, and bars of the latest; `most` is a full bar."""

    runs: int
    completed: int
    p50: float
    p95: float
    longest: float
    most: float
    lines: list[tuple[str, float]]
    bars: list[Bar]
    bar: float
    since: datetime
    until: datetime
    width: int = WIDTH
    height: int = HEIGHT


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that at least so many percent of the sorted values reach."""
    return values[max(0, -(-len(values) * percent // 100) - 1)]


def draw(figures: Sequence[RunFigure], zone: ZoneInfo) -> Durations | None:
    """Draw runs, which are the newest first; returns `None` if none that started has ended."""
    ran = [(run, run.took_seconds) for run in figures if run.took_seconds is not None]
    if not ran:
        return None
    took = sorted(duration for _, duration in ran)
    p50, p95 = percentile(took, 50), percentile(took, 95)
    drawn = ran[:_DRAWN][::-1]
    most = max(*(duration for _, duration in drawn), p95, 0.001)
    # A few runs are not drawn as broad blocks.
    step = WIDTH / max(len(drawn), _DRAWN // 2)

    def height(value: float) -> float:
        return round(max(_LOWEST, HEIGHT * value / most), 1)

    bars = [
        Bar(
            run=run.run,
            x=round(WIDTH - (len(drawn) - index) * step, 1),
            y=round(HEIGHT - height(duration), 1),
            height=height(duration),
            tint=TINT_OF.get(run.state, "plain"),
            title=f"{run.state} in {seconds(duration)}, attempt {run.attempt}, "
            f"{run.created_at.astimezone(zone):%Y-%m-%d %H:%M:%S}",
        )
        for index, (run, duration) in enumerate(drawn)
    ]
    return Durations(
        runs=len(ran),
        completed=sum(run.state == "completed" for run, _ in ran),
        p50=p50,
        p95=p95,
        longest=took[-1],
        most=most,
        lines=[(name, HEIGHT - height(value)) for name, value in (("p50", p50), ("p95", p95))],
        bars=bars,
        bar=round(step * (1 - _GAP), 1),
        since=drawn[0][0].created_at,
        until=drawn[-1][0].created_at,
    )
