"""Work: enqueued, waiting, under way and settled."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from headway_contract.fields import ManifestId, Name, Text
from headway_contract.work import stored_retry
from headway_contract.work_queue import EnqueuedStatus, WorkAnswer, WorkState, WorkStatus
from headway_errors import NotFound
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.lists import Listing, Page, read_row
from headway_console.reading.manifests import id_of_filter
from headway_console.reading.runs import RunRow, read_attempts

queries = Queries("headway_console.reading", "sql/works.sql")

# Number of the latest settled works that a search reads.
SEARCHED = 20_000
# Waiting work is counted up to this number.
_COUNTED_WAITING = 50_000
_UNSETTLED = Listing("work", "queued_at")
_SETTLED = Listing("settled work", "settled_at")
_ENQUEUED = Listing("enqueued", "enqueued_at", "work_id")


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


class WorkDetails(WorkAnswer, frozen=True, kw_only=True):
    """One piece of work with its runs and its dead letters, the latest first."""

    runs: list[RunRow]  # type: ignore[assignment]


async def page_of_works(
    connection: Connection, filters: WorkFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[WorkStatus]:
    """List work, the newest first."""
    manifest = await id_of_filter(connection, filters.manifest, filters.manifest_id)
    where = (filters.group, filters.job, manifest)
    if filters.state != "settled":
        place = _UNSETTLED.time_and_id(cursor)
        rows = await connection.fetch(
            queries["unsettled"], filters.state, *where, filters.reason, *place, limit + 1
        )
        return _UNSETTLED.page(rows, limit, _work_status)
    place = _SETTLED.time_and_id(cursor)
    rows = await connection.fetch(
        queries["settled"], filters.reason, *where, *place, SEARCHED, limit + 1
    )
    page = _SETTLED.page(rows, limit, _work_status)
    if page.next is not None:
        return page
    reached = await connection.fetchrow(queries["reached"], *place, SEARCHED)
    return _SETTLED.searched(page, reached)


async def page_of_enqueued(
    connection: Connection,
    *,
    refused_only: bool = False,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[EnqueuedStatus]:
    """List enqueued work that is not queued, the oldest first."""
    place = _ENQUEUED.time_and_id(cursor)
    rows = await connection.fetch(queries["enqueued"], refused_only, *place, limit + 1)
    return _ENQUEUED.page(rows, limit, partial(read_row, EnqueuedStatus))


async def read_waiting(connection: Connection) -> Sequence[Any]:
    """Count waiting work by group and reason."""
    return await connection.fetch(queries["waiting_by_reason"], _COUNTED_WAITING)


async def count_waiting(connection: Connection) -> dict[str, int]:
    """Count waiting work by reason, the most frequent first."""
    counts: Counter[str] = Counter()
    for row in await read_waiting(connection):
        counts[row["reason"]] += row["works"]
    return dict(counts.most_common())


async def read_work(connection: Connection, identity: UUID) -> WorkDetails:
    """Return a piece of work by its id or by that of a run; raises `NotFound`."""
    row = await connection.fetchrow(queries["work"], identity)
    if row is None:
        raise NotFound(
            f"the dispatcher knows no work or run {identity}: it may not have arrived, or be "
            "pruned; see 'headway work'"
        )
    runs = await read_attempts(connection, row["id"])
    retry = stored_retry(row["retry"])
    return read_row(WorkDetails, row, status=_work_status(row), retry=retry, runs=runs[::-1])


def _work_status(row: Any) -> WorkStatus:
    return read_row(WorkStatus, row, work=row["id"])
