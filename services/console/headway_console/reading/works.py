"""Work: waiting, under way and settled."""

from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.fields import ManifestId, Name, Text
from headway_contract.work_queue import WorkState, WorkStatus
from headway_postgres_kit import Connection, Queries
from msgspec import Struct, structs

from headway_console.reading.manifests import find_id
from headway_console.reading.pages import Page, page_of, read_row, searched, time_and_id
from headway_console.reading.run import queries as run_queries
from headway_console.reading.runs import RunRow, run_row

queries = Queries("headway_console.reading", "sql/works.sql")

# Number of the latest settled works that a search reads.
LOOKED_THROUGH = 20_000
_RUNS_OF_WORK = 100
# Waiting work is counted up to this number.
_COUNTED_WAITING = 50_000
_UNSETTLED, _SETTLED = "work", "settled work"


class WorkFilter(Struct, frozen=True, kw_only=True):
    """Filters of work; without a state all unsettled work.

    `reason` is the wait reason (`group_cap`, `no_worker`, …), or the outcome of settled work.
    """

    state: WorkState | None = None
    group: Name | None = None
    job: Name | None = None
    manifest: ManifestId | None = None
    manifest_id: UUID | None = None
    reason: Text | None = None


class WorkInFull(Struct, frozen=True, kw_only=True):
    """One piece of work with its runs, the oldest first, and its dead letters, the latest first."""

    status: WorkStatus
    manifest_id: UUID | None
    input: Any
    retry: dict[str, Any]
    timeout_seconds: float
    start_by: datetime | None
    concurrency_key: str | None
    concurrency_limit: int
    runs: list[RunRow]
    dead_letters: list[UUID]


async def page_of_works(
    connection: Connection, filters: WorkFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[WorkStatus]:
    """List work, the newest first."""
    if filters.manifest is not None:
        # An unknown manifest has no work.
        known = await find_id(connection, filters.manifest) or UUID(int=0)
        filters = structs.replace(filters, manifest=None, manifest_id=known)
    if filters.state == "settled":
        return await _settled(connection, filters, cursor, limit)
    rows = await connection.fetch(
        queries["unsettled"],
        *(filters.state, filters.group, filters.job, filters.manifest_id, filters.reason),
        *time_and_id(_UNSETTLED, cursor),
        limit + 1,
    )
    return page_of(_UNSETTLED, rows, limit, work_status, "queued_at")


async def _settled(
    connection: Connection, filters: WorkFilter, cursor: str | None, limit: int
) -> Page[WorkStatus]:
    place = time_and_id(_SETTLED, cursor)
    rows = await connection.fetch(
        queries["settled"],
        *(filters.reason, filters.group, filters.job, filters.manifest_id),
        *place,
        LOOKED_THROUGH,
        limit + 1,
    )
    page = page_of(_SETTLED, rows, limit, work_status, "settled_at")
    if page.next is not None:
        return page
    reached = await connection.fetchrow(queries["reached"], *place, LOOKED_THROUGH)
    return searched(page, _SETTLED, reached, "settled_at")


async def count_waiting(connection: Connection) -> dict[str, int]:
    """Count waiting work by reason, the most frequent first."""
    rows = await connection.fetch(queries["waiting_by_reason"], _COUNTED_WAITING)
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["reason"]] += row["works"]
    return dict(counts.most_common())


async def read_work(connection: Connection, identity: UUID) -> WorkInFull | None:
    """Return a piece of work by its id or by that of a run; `None` if it is unknown."""
    row = await connection.fetchrow(queries["work"], identity)
    if row is None:
        return None
    runs = await connection.fetch(run_queries["attempts"], row["id"], _RUNS_OF_WORK)
    return read_row(
        WorkInFull,
        row,
        status=work_status(row),
        runs=[run_row(run) for run in runs],
    )


def work_status(row: Any) -> WorkStatus:
    """Make a piece of work of its row."""
    ids = {"work": row["id"], "group": row["group_name"], "run": row["run_id"]}
    return read_row(WorkStatus, row, **ids)
