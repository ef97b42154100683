"""A day with many fires as a heat map: a row for each hour, a cell for five minutes. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from headway_contract.manifests import FireTime
from msgspec import Struct

from headway_console.pages.filters import count, tint, words
from headway_console.reading.occurrences import BucketCount, Stretch

HOUR, WIDTH = timedelta(hours=1), timedelta(minutes=5)
_MINUTE = timedelta(minutes=1)
# The worst of a cell colours it.
_ORDER = ("bad", "warn", "busy", "good", "")


class Cell(Struct, frozen=True, kw_only=True):
    """Five minutes, from `minute` of the day on; `worst` of the fires have the colour."""

    minute: int
    label: str
    tint: str
    fires: int
    worst: int
    is_whole: bool
    is_chosen: bool


class Row(Struct, frozen=True, kw_only=True):
    """One hour."""

    minute: int
    label: str
    is_chosen: bool
    cells: list[Cell]


def lay_out(
    since: datetime,
    until: datetime,
    zone: ZoneInfo,
    *,
    counts: Iterable[BucketCount],
    stretches: Sequence[Stretch],
    fires: Iterable[FireTime],
    now: datetime,
    chosen: tuple[datetime, datetime] | None,
) -> list[Row]:
    """Build the hours of a day; on a day on which the clock changes, they are 23 or 25."""
    results = _results(since, counts, fires, now)
    begin, end = chosen or (until, until)
    rows = []
    at = since
    while at < until:
        starts = [at + number * WIDTH for number in range(HOUR // WIDTH)]
        rows.append(
            Row(
                minute=(at - since) // _MINUTE,
                label=f"{at.astimezone(zone):%H:%M}",
                is_chosen=begin < at + HOUR and at < end,
                cells=[
                    _cell(
                        start,
                        (start - since) // _MINUTE,
                        zone,
                        results[start],
                        stretches,
                        is_chosen=begin <= start < end <= begin + WIDTH,
                    )
                    for start in starts
                ],
            )
        )
        at += HOUR
    return rows


def _results(
    since: datetime, counts: Iterable[BucketCount], fires: Iterable[FireTime], now: datetime
) -> defaultdict[datetime, Counter[str]]:
    """Count results by cell: decided ones, and times that are not decided."""
    results: defaultdict[datetime, Counter[str]] = defaultdict(Counter)
    for bucket in counts:
        results[bucket.at][bucket.state] += bucket.fires
    for fire in fires:
        start = since + (fire.due_at - since) // WIDTH * WIDTH
        state = "excluded" if fire.excluded else "to_come" if fire.due_at > now else "not_fired"
        results[start][state] += 1
    return results


def _cell(
    start: datetime,
    minute: int,
    zone: ZoneInfo,
    results: Counter[str],
    stretches: Sequence[Stretch],
    *,
    is_chosen: bool,
) -> Cell:
    end = start + WIDTH
    parts = [f"{count(fires)} {words(state)}" for state, fires in results.most_common()]
    tints = {tint(state) for state in results}
    for stretch in stretches:
        if stretch.first_due_at < end and start <= stretch.last_due_at:
            parts.append(f"{words(stretch.state)} ({words(stretch.reason)})")
            tints.add(tint(stretch.state))
    worst = min(tints, key=_ORDER.index, default="")
    local = f"{start.astimezone(zone):%H:%M} to {end.astimezone(zone):%H:%M}"
    return Cell(
        minute=minute,
        label=f"{local}: {', '.join(parts)}" if parts else "",
        tint=worst,
        fires=results.total(),
        worst=sum(fires for state, fires in results.items() if tint(state) == worst),
        is_whole=len(tints) == 1,
        is_chosen=is_chosen,
    )
