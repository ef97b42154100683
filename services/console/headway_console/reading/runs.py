"""Lists of runs."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from headway_contract.fields import ManifestId, Name, Text
from headway_contract.work_queue import RunState
from headway_postgres_kit import Connection, Queries
from msgspec import Struct, structs

from headway_console.reading.manifests import find_id
from headway_console.reading.pages import (
    Page,
    Words,
    like,
    page_of,
    read_row,
    searched,
    time_and_id,
)

queries = Queries("headway_console.reading", "sql/runs.sql")

# Number of the newest runs that a search without an index reads, in about 25 ms. Text is slower,
# because it is stored apart from the run.
LOOKED_THROUGH = 10_000
LOOKED_THROUGH_FOR_TEXT = 4_000

_LIVE = ("pending", "in_progress")
_LIST = "runs"


class RunFilter(Struct, frozen=True, kw_only=True):
    """Filters of runs.

    `text` is searched in the error and in the input, or in one of them. Text and worker are
    searched among the newest runs that match the other filters; only failed runs have an error.
    """

    state: RunState | None = None
    group: Name | None = None
    job: Name | None = None
    manifest: ManifestId | None = None
    manifest_id: UUID | None = None
    worker: Text | None = None
    since: datetime | None = None
    before: datetime | None = None
    text: Words | None = None
    text_in: Literal["anywhere", "error", "input"] = "anywhere"

    @property
    def among(self) -> int | None:
        """Return the number of runs to search; `None` if an index finds all."""
        if self.text:
            return LOOKED_THROUGH_FOR_TEXT
        return LOOKED_THROUGH if self.worker else None


class RunRow(Struct, frozen=True, kw_only=True):
    """A run in a list."""

    run: UUID
    work: UUID
    round: int
    attempt: int
    manifest: str | None
    group: str
    job: str
    state: str
    cause: str
    worker: str | None
    host: str | None
    due_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failure_kind: str | None
    failure_message: str | None
    cancel_reason: str | None
    percent: float | None = None
    message: str | None = None


async def page_of_runs(
    connection: Connection, filters: RunFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[RunRow]:
    """List runs, the newest first."""
    if filters.manifest is not None:
        # An unknown manifest has no runs.
        known = await find_id(connection, filters.manifest) or UUID(int=0)
        filters = structs.replace(filters, manifest=None, manifest_id=known)
    place = time_and_id(_LIST, cursor)
    live = await _live(connection, filters, place, limit + 1)
    ended: Sequence[Any] = ()
    reached = None
    state = "failed" if filters.text and filters.text_in == "error" else filters.state
    if filters.state not in _LIVE and filters.state in (None, state):
        ended = await _ended(connection, filters, state, place, limit + 1)
        if filters.among is not None and len(ended) <= limit:
            reached = await connection.fetchrow(
                queries["reached"],
                *(state, filters.group, filters.job, filters.manifest_id),
                *(filters.since, filters.before),
                *place,
                filters.among,
            )
    if reached is not None:  # older runs belong to the next page
        live = [row for row in live if _newest_first(row) >= _newest_first(reached)]
    rows = sorted([*live, *ended], key=_newest_first, reverse=True)
    page = page_of(_LIST, rows, limit, run_row, "created_at", "run_id")
    return searched(page, _LIST, reached, "created_at", "run_id")


async def _live(
    connection: Connection, filters: RunFilter, place: tuple[Any, Any], most: int
) -> Sequence[Any]:
    """Return the runs that have not ended; they have no error yet."""
    if filters.state not in (None, *_LIVE) or (filters.text and filters.text_in == "error"):
        return ()
    return await connection.fetch(
        queries["live"],
        *(filters.state, filters.group, filters.job, filters.manifest_id, filters.worker),
        *(filters.since, filters.before, *place, like(filters.text), most),
    )


async def _ended(
    connection: Connection,
    filters: RunFilter,
    state: str | None,
    place: tuple[Any, Any],
    most: int,
) -> Sequence[Any]:
    pattern = like(filters.text)
    return await connection.fetch(
        queries["ended"],
        *(state, filters.group, filters.job, filters.manifest_id, filters.worker),
        *(filters.since, filters.before),
        *place,
        pattern if filters.text_in != "input" else None,
        pattern if filters.text_in != "error" else None,
        filters.among or most,
        most,
    )


def _newest_first(row: Any) -> tuple[datetime, UUID]:
    return row["created_at"], row["run_id"]


def run_row(row: Any) -> RunRow:
    """Make a run of its row."""
    progress = row["progress"] or {}
    return read_row(
        RunRow,
        row,
        run=row["run_id"],
        work=row["work_id"],
        group=row["group_name"],
        percent=progress.get("percent"),
        message=progress.get("message"),
    )
