"""One run in full: its timeline, the other attempts of its work, what it logged and returned."""

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.lifecycle import Failure
from headway_contract.progress import LogLine
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.events import EventRow, event_row
from headway_console.reading.runs import RunRow, run_row

queries = Queries("headway_console.reading", "sql/run.sql")

_ATTEMPTS = 100
_EVENTS = 500


class RunInFull(Struct, frozen=True, kw_only=True):
    """All that is known of a run.

    `timeline` has the events of its work, those of the other attempts included, so that a retry
    stands beside what it followed from; `reissued` and `begun_elsewhere` count what made its body
    begin more than once, as far as is known.
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
    """One run, with the first lines of its log; none if there is no such run."""
    row = await connection.fetchrow(queries["run"], run)
    if row is None:
        return None
    attempts = await connection.fetch(queries["attempts"], row["work_id"], _ATTEMPTS)
    told = await connection.fetch(queries["events"], row["work_id"], row["lease_id"], _EVENTS)
    failure = row["failure"]
    return RunInFull(
        status=run_row(row),
        lease=row["lease_id"],
        failure=None if failure is None else msgspec.convert(failure, Failure),
        log=await read_log(connection, run, limit=lines),
        work_outcome=row["outcome"],
        attempts=[run_row(one) for one in attempts],
        timeline=[event_row(one) for one in told],
        **{
            name: row[name]
            for name in (
                *("manifest_id", "last_heard_at", "lease_ended_at", "input", "output", "trace_id"),
                *("log_dropped", "reissued", "begun_elsewhere", "work_state", "wait_reason"),
                *("not_before", "cancel_requested_at", "queued_at", "received_at", "retry"),
                *("concurrency_key", "timeout_seconds", "dead_letter"),
            )
        },
    )


async def read_log(
    connection: Connection, run: UUID, *, after: int = 0, limit: int = 500
) -> list[LogLine]:
    """Lines that a run has logged, behind the one with this number."""
    rows = await connection.fetch(queries["log"], run, after, limit)
    return [LogLine(**dict(row)) for row in rows]


async def look_at_run(connection: Connection, run: UUID) -> tuple[Any, ...]:
    """What changes about a run while somebody looks at it: two looks that differ are news."""
    row = await connection.fetchrow(queries["look"], run)
    return () if row is None else tuple(row.values())
