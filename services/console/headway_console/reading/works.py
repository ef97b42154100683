"""The work queue: what waits for what, what is under way, and how work ended."""

from collections import Counter
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.dispatching import WorkStateAsked, WorkStatus
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, page_of, searched, time_and_id
from headway_console.reading.run import queries as run_queries
from headway_console.reading.runs import RunRow, run_row

queries = Queries("headway_console.reading", "sql/works.sql")

# Among how much of the latest settled work a search looks.
LOOKED_THROUGH = 20_000
_RUNS_OF_WORK = 100
# How much waiting work is counted; who has more knows enough.
_COUNTED_WAITING = 50_000
_UNSETTLED, _SETTLED = "work", "settled work"


class WorkFilter(Struct, frozen=True, kw_only=True):
    """Which work is meant; without a state all that is not settled.

    `reason` is what it waits for, in the words of the queue (`group_cap`, `no_worker`, …), or for
    settled work its outcome.
    """

    state: WorkStateAsked | None = None
    group: str | None = None
    job: str | None = None
    manifest: UUID | None = None
    reason: str | None = None
    not_before_since: datetime | None = None
    not_before_until: datetime | None = None


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
    connection: Connection, asked: WorkFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[WorkStatus]:
    """A page of work, the newest first."""
    if asked.state == "settled":
        return await _settled(connection, asked, cursor, limit)
    rows = await connection.fetch(
        queries["unsettled"],
        *(asked.state, asked.group, asked.job, asked.manifest, asked.reason),
        *(asked.not_before_since, asked.not_before_until),
        *time_and_id(_UNSETTLED, cursor),
        limit + 1,
    )
    return page_of(_UNSETTLED, rows, limit, work_status, "queued_at")


async def _settled(
    connection: Connection, asked: WorkFilter, cursor: str | None, limit: int
) -> Page[WorkStatus]:
    place = time_and_id(_SETTLED, cursor)
    rows = await connection.fetch(
        queries["settled"],
        *(asked.reason, asked.group, asked.job, asked.manifest),
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
    """How much waits for what, the most first; counted to 50,000 at most."""
    rows = await connection.fetch(queries["waiting_by_reason"], _COUNTED_WAITING)
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row["reason"]] += row["works"]
    return dict(counts.most_common())


async def read_work(connection: Connection, identity: UUID) -> WorkInFull | None:
    """One piece of work, by its id or by that of a run of it."""
    row = await connection.fetchrow(queries["work"], identity)
    if row is None:
        return None
    runs = await connection.fetch(run_queries["attempts"], row["id"], _RUNS_OF_WORK)
    return WorkInFull(
        status=work_status(row),
        runs=[run_row(one) for one in runs],
        dead_letters=list(row["dead_letters"]),
        **{
            name: row[name]
            for name in (
                *("manifest_id", "input", "retry", "timeout_seconds", "start_by"),
                *("concurrency_key", "concurrency_limit"),
            )
        },
    )


def work_status(row: Any) -> WorkStatus:
    """A piece of work out of its row."""
    return WorkStatus(
        work=row["id"],
        group=row["group_name"],
        run=row["run_id"],
        **{
            name: row[name]
            for name in (
                *("round", "manifest", "job", "cause", "state", "wait_reason", "outcome"),
                *("priority", "attempts", "runs", "due_at", "queued_at", "not_before"),
                *("settled_at", "cancel_requested_at", "cancel_reason"),
            )
        },
    )
