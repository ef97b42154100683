"""Workers, by their heartbeats."""

from datetime import datetime
from typing import Any

from headway_contract.operations import WorkerStatus
from headway_postgres_kit import Connection, Queries

from headway_console.reading.pages import Page, name_of, page_of, read_row

queries = Queries("headway_console.reading", "sql/workers.sql")

_LIST = "workers"


async def page_of_workers(
    connection: Connection,
    *,
    heard_since: datetime,
    alive_only: bool = False,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[WorkerStatus]:
    """List workers in the order of their names; those heard since then are alive."""
    rows = await connection.fetch(
        queries["page"], heard_since, alive_only, name_of(_LIST, cursor), limit + 1
    )
    return page_of(_LIST, rows, limit, _worker, None, "name")


def _worker(row: Any) -> WorkerStatus:
    return read_row(WorkerStatus, row, worker=row["name"])


async def look_at_workers(connection: Connection) -> tuple[Any, ...]:
    """Return values that change with every heartbeat."""
    [row] = await connection.fetch(queries["look"])
    return tuple(row.values())
