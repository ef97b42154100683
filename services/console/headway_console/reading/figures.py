"""Durations of runs, for plots."""

from datetime import datetime
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import read_row

queries = Queries("headway_console.reading", "sql/figures.sql")


class RunFigure(Struct, frozen=True, kw_only=True):
    """One run that ended."""

    run: UUID
    state: str
    attempt: int
    created_at: datetime
    started_at: datetime | None
    took_seconds: float | None


async def latest_figures(
    connection: Connection, manifest: UUID, *, limit: int = 500
) -> list[RunFigure]:
    """Return the latest runs of a manifest that ended, the newest first."""
    rows = await connection.fetch(queries["latest"], manifest, limit)
    return [read_row(RunFigure, row, run=row["run_id"]) for row in rows]
