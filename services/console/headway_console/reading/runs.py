"""Runs, live and ended, as a list; and one run with its timeline, other attempts and log."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract.fields import ManifestId, Name, Text
from headway_contract.lifecycle import Failure
from headway_contract.work import stored_retry
from headway_contract.work_queue import RunAnswer, RunState, RunStatus
from headway_contract.worker_protocol import LogLine
from headway_errors import NotFound
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.events import EventRow, event_row
from headway_console.reading.lists import Listing, Page, SearchText, like, read_row
from headway_console.reading.manifests import id_of_filter

queries = Queries("headway_console.reading", "sql/runs.sql")

# Number of the newest runs that a search without an index reads, in about 25 ms. Text is slower,
# because it is stored apart from the run.
SEARCHED = 10_000
SEARCHED_FOR_TEXT = 4_000

_LIVE = ("pending", "in_progress")
_RUNS = Listing("runs", "created_at", "run_id")
_ATTEMPTS = 100
_EVENTS = 500


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
    work: UUID | None = None
    worker: Text | None = None
    since: datetime | None = None
    before: datetime | None = None
    text: SearchText | None = None
    text_in: Literal["anywhere", "error", "input"] = "anywhere"

    @property
    def among(self) -> int | None:
        """Return the number of runs to search; `None` if an index finds all."""
        if self.text:
            return SEARCHED_FOR_TEXT
        return SEARCHED if self.worker else None


class RunRow(RunStatus, frozen=True, kw_only=True):
    """A run in a list."""

    cause: str
    percent: float | None = None
    message: str | None = None


class RunDetails(RunAnswer, frozen=True, kw_only=True):
    """One run in full.

    `timeline` has the events of its work, other attempts included. `reissued` and
    `begun_elsewhere` count known repeated starts of its body.
    """

    status: RunRow
    last_heard_at: datetime | None
    reissued: int
    begun_elsewhere: int
    work_state: str
    work_outcome: str | None
    wait_reason: str | None
    queued_at: datetime
    retry: dict[str, Any]
    timeout_seconds: float
    dead_letter: UUID | None
    attempts: list[RunRow]
    timeline: list[EventRow]


async def page_of_runs(
    connection: Connection, filters: RunFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[RunRow]:
    """List runs, the newest first."""
    manifest = await id_of_filter(connection, filters.manifest, filters.manifest_id)
    place = _RUNS.time_and_id(cursor)
    in_error = bool(filters.text) and filters.text_in == "error"
    state = "failed" if in_error else filters.state
    where = (filters.group, filters.job, manifest)
    times = (filters.since, filters.before, *place)
    pattern = like(filters.text)
    live: Sequence[Any] = ()
    ended: Sequence[Any] = ()
    reached = None
    if filters.state in (None, *_LIVE) and not in_error:  # a live run has no error yet
        live = await connection.fetch(
            queries["live"],
            *(filters.state, *where, filters.worker, *times, pattern, limit + 1, filters.work),
        )
    if filters.state not in _LIVE and filters.state in (None, state):
        ended = await connection.fetch(
            queries["ended"],
            *(state, *where, filters.worker, *times),
            pattern if filters.text_in != "input" else None,
            pattern if filters.text_in != "error" else None,
            *(filters.among or limit + 1, limit + 1, filters.work),
        )
        if filters.among is not None and len(ended) <= limit:
            reached = await connection.fetchrow(
                queries["reached"], state, *where, *times, filters.among, filters.work
            )
    if reached is not None:  # older runs belong to the next page
        live = [row for row in live if _newest_first(row) >= _newest_first(reached)]
    rows = sorted([*live, *ended], key=_newest_first, reverse=True)
    return _RUNS.searched(_RUNS.page(rows, limit, _run_row), reached)


def _newest_first(row: Any) -> tuple[datetime, UUID]:
    return row["created_at"], row["run_id"]


async def read_run(connection: Connection, run: UUID, *, lines: int = 500) -> RunDetails:
    """Return a run with the first lines of its log; raises `NotFound`."""
    row = await connection.fetchrow(queries["run"], run)
    if row is None:
        raise NotFound(
            f"there is no run {run}: it may be older than the kept history; see 'headway runs'"
        )
    events = await connection.fetch(queries["events"], row["work_id"], _EVENTS)
    status = _run_row(row)
    return read_row(
        RunDetails,
        row,
        status=status,
        percent=status.percent,
        message=status.message,
        failure=msgspec.convert(row["failure"], Failure | None),
        retry=stored_retry(row["retry"]),
        log=await read_log(connection, run, limit=lines),
        attempts=await read_attempts(connection, row["work_id"]),
        timeline=[event_row(event) for event in events],
    )


async def read_attempts(connection: Connection, work: UUID) -> list[RunRow]:
    """Return the latest runs of a piece of work, the oldest first."""
    return [_run_row(row) for row in await connection.fetch(queries["attempts"], work, _ATTEMPTS)]


async def read_log(
    connection: Connection, run: UUID, *, after: int = 0, limit: int = 500
) -> list[LogLine]:
    """Return log lines of a run after a number."""
    rows = await connection.fetch(queries["log"], run, after, limit)
    return [LogLine(**dict(row)) for row in rows]


async def read_run_changes(connection: Connection, run: UUID) -> Any:
    """Return the values of a run that change while it runs; `None` if there is no run."""
    return await connection.fetchrow(queries["run_changes"], run)


def _run_row(row: Any) -> RunRow:
    progress = row["progress"] or {}
    return read_row(RunRow, row, percent=progress.get("percent"), message=progress.get("message"))
