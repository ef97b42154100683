"""Enqueued work that waits to be queued, or was refused."""

from typing import Any

from headway_contract.work_queue import EnqueuedStatus
from headway_postgres_kit import Connection, Queries

from headway_console.reading.pages import Page, page_of, read_row, time_and_id

queries = Queries("headway_console.reading", "sql/enqueued.sql")

_LIST = "enqueued"


async def page_of_enqueued(
    connection: Connection,
    *,
    refused_only: bool = False,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[EnqueuedStatus]:
    """List enqueued work that is not queued, the oldest first."""
    place = time_and_id(_LIST, cursor)
    rows = await connection.fetch(queries["page"], refused_only, *place, limit + 1)
    return page_of(_LIST, rows, limit, _status, "enqueued_at", "work_id")


def _status(row: Any) -> EnqueuedStatus:
    return read_row(EnqueuedStatus, row, work=row["work_id"], group=row["group_name"])
