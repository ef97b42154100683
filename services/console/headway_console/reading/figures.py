"""How long runs take and how late they begin, for plots."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

queries = Queries("headway_console.reading", "sql/figures.sql")

# A bucket is looked at in parts, so that what is seen of a busy one is spread over it.
_PARTS = 10
_RUNS_OF_A_PART = 20
_MOST_BUCKETS = 100


class FigureFilter(Struct, frozen=True, kw_only=True):
    """Of which runs the figures are; what is left out does not matter."""

    manifest: UUID | None = None
    job: str | None = None
    group: str | None = None


class RunFigure(Struct, frozen=True, kw_only=True):
    """One run that ended. Only a first attempt is early or late."""

    run: UUID
    state: str
    attempt: int
    created_at: datetime
    started_at: datetime | None
    took_seconds: float | None
    late_seconds: float | None


class Bucket(Struct, frozen=True, kw_only=True):
    """The runs of a stretch of time. Times in seconds, none if no run of it had begun.

    Of a busy stretch some two hundred runs are looked at, spread over it: then it is not `in_full`.
    """

    at: datetime
    runs: int
    in_full: bool
    failed: int
    cancelled: int
    took_p50: float | None
    took_p95: float | None
    late_p50: float | None
    late_p95: float | None


async def latest_figures(
    connection: Connection,
    asked: FigureFilter,
    *,
    since: datetime | None = None,
    before: datetime | None = None,
    limit: int = 500,
) -> list[RunFigure]:
    """The latest runs that ended, the newest first."""
    rows = await connection.fetch(
        queries["latest"], asked.manifest, asked.job, asked.group, since, before, limit
    )
    names = ("state", "attempt", "created_at", "started_at", "took_seconds", "late_seconds")
    return [RunFigure(run=row["run_id"], **{name: row[name] for name in names}) for row in rows]


async def bucketed_figures(
    connection: Connection,
    asked: FigureFilter,
    *,
    since: datetime,
    until: datetime,
    width: timedelta,
) -> list[Bucket]:
    """Percentiles by stretches of time, the oldest first; stretches without runs are left out."""
    if until - since > _MOST_BUCKETS * width:
        raise ValueError(f"more than {_MOST_BUCKETS} stretches of {width}: ask for wider ones")
    rows = await connection.fetch(
        queries["buckets"],
        *(asked.manifest, asked.job, asked.group, since, until),
        *(width / _PARTS, width, _RUNS_OF_A_PART),
    )
    return [_bucket(row) for row in rows]


def _bucket(row: Any) -> Bucket:
    took, late = row["took"] or (None, None), row["late"] or (None, None)
    return Bucket(
        took_p50=took[0],
        took_p95=took[1],
        late_p50=late[0],
        late_p95=late[1],
        **{name: row[name] for name in ("at", "runs", "failed", "cancelled", "in_full")},
    )
