"""One run in full: timeline, other attempts, log and output."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.worker_protocol import LogLine
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.events import EventRow, event_row
from headway_console.reading.pages import read_row
from headway_console.reading.runs import RunRow, run_row

queries = Queries("headway_console.reading", "sql/run.sql")

_ATTEMPTS = 100
_EVENTS = 500


class RunInFull(Struct, frozen=True, kw_only=True):
    """One run in full.

    `timeline` has the events of its work, other attempts included. `reissued` and
    `begun_elsewhere` count known repeated starts of its body.
    """

    status: RunRow
    manifest_id: UUID | None
    lease: UUID
    last_heard_at: datetime | None
    lease_ended_at: datetime | None
    input: Any
    output: Any
    failure: Failure | None
    trace_id: str | None
    log: list[LogLine]
    log_dropped: int
    reissued: int
    begun_elsewhere: int
    work_state: str
    work_outcome: str | None
    wait_reason: str | None
    not_before: datetime | None
    cancel_requested_at: datetime | None
    queued_at: datetime
    received_at: datetime
    concurrency_key: str | None
    retry: dict[str, Any]
    timeout_seconds: float
    dead_letter: UUID | None
    attempts: list[RunRow]
    timeline: list[EventRow]


async def read_run(connection: Connection, run: UUID, *, lines: int = 500) -> RunInFull | None:
    """Return a run with the first lines of its log; `None` if it is unknown."""
    row = await connection.fetchrow(queries["run"], run)
    if row is None:
        return None
    attempts = await connection.fetch(queries["attempts"], row["work_id"], _ATTEMPTS)
    events = await connection.fetch(queries["events"], row["work_id"], row["lease_id"], _EVENTS)
    failure = row["failure"]
    return read_row(
        RunInFull,
        row,
        status=run_row(row),
        lease=row["lease_id"],
        failure=None if failure is None else msgspec.convert(failure, Failure),
        log=await read_log(connection, run, limit=lines),
        work_outcome=row["outcome"],
        attempts=[run_row(attempt) for attempt in attempts],
        timeline=[event_row(event) for event in events],
    )


async def read_log(
    connection: Connection, run: UUID, *, after: int = 0, limit: int = 500
) -> list[LogLine]:
    """Return log lines of a run after a number."""
    rows = await connection.fetch(queries["log"], run, after, limit)
    return [LogLine(**dict(row)) for row in rows]


async def look_at_run(connection: Connection, run: UUID) -> tuple[Any, ...]:
    """Return the values of a run that change while it runs."""
    row = await connection.fetchrow(queries["look"], run)
    return () if row is None else tuple(row.values())
