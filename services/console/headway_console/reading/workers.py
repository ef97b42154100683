"""Workers, as their heartbeats tell."""

from datetime import datetime
from typing import Any

from headway_contract.dispatching import WorkerStatus
from headway_postgres_kit import Connection, Queries

from headway_console.reading.pages import Page, name_of, page_of

queries = Queries("headway_console.reading", "sql/workers.sql")

_LIST = "workers"


async def page_of_workers(
    connection: Connection,
    *,
    heard_since: datetime,
    alive_only: bool = True,
    name: str | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[WorkerStatus]:
    """A page of workers in the order of their names; those heard since then are alive."""
    rows = await connection.fetch(
        queries["page"], heard_since, alive_only, name_of(_LIST, cursor), name, limit + 1
    )
    return page_of(_LIST, rows, limit, _worker, None, "name")


def _worker(row: Any) -> WorkerStatus:
    return WorkerStatus(
        worker=row["name"],
        runs=list(row["runs"]),
        jobs=list(row["jobs"]),
        **{
            name: row[name]
            for name in (
                *("host", "sdk", "sdk_version", "code_version", "slots", "alive", "draining"),
                *("first_heard_at", "last_heard_at"),
            )
        },
    )


async def look_at_workers(connection: Connection) -> tuple[Any, ...]:
    """What changes whenever a worker is heard: two looks that differ are news."""
    [row] = await connection.fetch(queries["look"])
    return tuple(row.values())
