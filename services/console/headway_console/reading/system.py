"""The overview, and the state of the passes, their backlogs and the workers, from the tables."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from headway_contract.fields import Name, Text
from headway_contract.manifests import PauseStatus
from headway_contract.operations import WorkerStatus
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.dead_letters import FailureGroup, page_of_failures
from headway_console.reading.groups import GroupRow, page_of_groups
from headway_console.reading.lists import Listing, Page, read_row
from headway_console.reading.pauses import list_pauses_of_all

queries = Queries("headway_console.reading", "sql/overview.sql", "sql/system.sql")

_COUNTED = 10_000
_SAMPLE = 2_000
_LATEST = 200
_WORKERS = Listing("workers", None, "name")
_DAY = timedelta(hours=24)
_NOW = timedelta(minutes=5)
_SLOT = timedelta(minutes=30)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FEW = 8
_GROUPS = 50
_BUSY_LOOKED_AT = 500
_LATELY = timedelta(hours=1)
# Passes poll every five seconds.
_LATE, _STUCK = timedelta(seconds=10), timedelta(seconds=60)


class Leader(Struct, frozen=True, kw_only=True):
    """The ticking scheduler; `ticked_at` is the time of its last decision."""

    holder: str
    epoch: int
    since: datetime
    ticked_at: datetime | None


class Backlog(Struct, frozen=True, kw_only=True):
    """The backlog of a pass, counted up to 10,000, with the time of its oldest entry."""

    name: str
    waiting: int
    oldest_at: datetime | None = None
    # Usual delay now, if known.
    usual_seconds: float | None = None
    last_at: datetime | None = None


def state_of(backlog: Backlog, *, now: datetime) -> Literal["ok", "late", "stuck"]:
    """Return the state of a pass by the age of its oldest entry."""
    if backlog.oldest_at is None or now - backlog.oldest_at < _LATE:
        return "ok"
    return "late" if now - backlog.oldest_at < _STUCK else "stuck"


class Dispatcher(Struct, frozen=True, kw_only=True):
    """A dispatcher process, with its own heartbeat through the broker."""

    name: str
    heard_since: datetime
    last_heard_at: datetime


class Health(Struct, frozen=True, kw_only=True):
    """Leader, backlogs and dispatchers."""

    leader: Leader | None
    backlogs: list[Backlog]
    dispatchers: list[Dispatcher]


class System(Struct, frozen=True, kw_only=True):
    """State of the system; `rejected` and `tables` are rows of their statements."""

    health: Health
    connected: dict[str, int]
    rejected: Sequence[Any]
    tables: Sequence[Any]
    versions: dict[str, str]


async def read_health(connection: Connection, *, now: datetime) -> Health:
    """Read the leader, the backlogs and the dispatchers."""
    leader = await connection.fetchrow(queries["leader"])
    dispatchers = await connection.fetch(queries["dispatchers"])
    return Health(
        leader=None if leader is None else Leader(**dict(leader)),
        backlogs=await _backlogs(connection, now),
        dispatchers=[Dispatcher(**dict(row)) for row in dispatchers],
    )


async def read_system(connection: Connection, *, now: datetime) -> System:
    """Read the state of the system."""
    connected = await connection.fetch(queries["connected"])
    versions = await connection.fetch(queries["versions"])
    return System(
        health=await read_health(connection, now=now),
        connected={row["name"]: row["connections"] for row in connected},
        rejected=await connection.fetch(queries["rejected"]),
        tables=await connection.fetch(queries["tables"]),
        versions={row["name"]: row["version"] for row in versions},
    )


async def _backlogs(connection: Connection, now: datetime) -> list[Backlog]:
    [overdue] = await connection.fetch(queries["overdue"], now, _COUNTED)
    outboxes = await connection.fetch(queries["outboxes"], _COUNTED)
    [unreceived, unreported] = await connection.fetch(queries["in_flight"], _SAMPLE)
    taking_in = await connection.fetchval(queries["taking_in"], _LATEST)
    [projecting] = await connection.fetch(queries["projecting"], now - _LATELY, _LATEST)
    return [
        Backlog(name="tick", **overdue),
        *(Backlog(**row) for row in outboxes),
        Backlog(**unreceived, usual_seconds=taking_in),
        Backlog(**unreported),
        Backlog(name="projector", waiting=0, **projecting),
    ]


async def page_of_workers(
    connection: Connection,
    *,
    heard_since: datetime,
    alive_only: bool = False,
    name: Text | None = None,
    job: Name | None = None,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[WorkerStatus]:
    """List workers in the order of their names; workers heard since then are alive."""
    place = _WORKERS.last_name(cursor)
    rows = await connection.fetch(
        queries["workers"], heard_since, alive_only, place, limit + 1, name, job
    )
    return _WORKERS.page(rows, limit, lambda row: read_row(WorkerStatus, row, worker=row["name"]))


async def list_leases(connection: Connection, worker: str) -> Sequence[Any]:
    """Return the rows of the leases that a worker holds, the oldest first."""
    return await connection.fetch(queries["leases_of_worker"], worker, _LATEST)


async def read_heartbeats(connection: Connection) -> Any:
    """Return a row that changes with every heartbeat."""
    return await connection.fetchrow(queries["heartbeats"])


class Throughput(Struct, frozen=True, kw_only=True):
    """Runs that ended in a time slot that begins at `at`."""

    at: datetime
    completed: int
    failed: int
    cancelled: int


class Coming(Struct, frozen=True, kw_only=True):
    """A manifest that fires soon."""

    id: UUID
    external_id: str
    job: str
    group: str
    fires_at: datetime


class Failing(Struct, frozen=True, kw_only=True):
    """A job whose runs failed in the last 24 hours."""

    job: str
    failed: int
    last_at: datetime


class StartDelay(Struct, frozen=True, kw_only=True):
    """Percentiles of the seconds from due time to start, over the latest first attempts."""

    runs: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Counts(Struct, frozen=True, kw_only=True):
    """Counts of the overview."""

    manifests: int
    disabled: int
    blocked: int
    troubled: int
    dead_letters: int
    workers: int
    slots: int
    waiting: int = 0
    dispatched: int = 0


class Overview(Struct, frozen=True, kw_only=True):
    """The overview; `lately` covers the last five minutes, `day` the last 24 hours."""

    now: datetime
    health: Health
    counts: Counts
    lately: Throughput
    day: list[Throughput]
    start_delay: StartDelay = StartDelay()
    coming: list[Coming]
    failing: list[Failing]
    failures: list[FailureGroup]
    groups: list[GroupRow]
    # The pauses in force of all manifests.
    paused: list[PauseStatus] = []


async def read_overview(
    connection: Connection, *, now: datetime, heard_since: datetime
) -> Overview:
    """Return the overview; workers heard since then are alive."""
    counts = await connection.fetchrow(queries["counts"], heard_since, _COUNTED)
    [delay] = await connection.fetch(queries["start_delay"], now - _DAY, _SAMPLE)
    coming = await connection.fetch(queries["due_next"], _FEW, _BUSY_LOOKED_AT)
    failing = await connection.fetch(queries["failing"], now - _DAY, _FEW)
    failures = await page_of_failures(connection, limit=_FEW)
    [lately] = await read_throughput(connection, until=now, width=_NOW, slots=1)
    return Overview(
        now=now,
        health=await read_health(connection, now=now),
        counts=Counts(**dict(counts or {})),
        lately=lately,
        day=await read_throughput(connection, until=end_of_slot(now, _SLOT), width=_SLOT),
        start_delay=StartDelay(**delay),
        coming=[read_row(Coming, row) for row in coming],
        failing=[Failing(**dict(row)) for row in failing],
        failures=failures.items,
        groups=(await page_of_groups(connection, limit=_GROUPS)).items,
        paused=await list_pauses_of_all(connection),
    )


def end_of_slot(now: datetime, width: timedelta) -> datetime:
    """Return the end of the current time slot, so that slots begin at round times."""
    return now - (now - _EPOCH) % width + width


async def read_throughput(
    connection: Connection, *, until: datetime, width: timedelta, slots: int = 48
) -> list[Throughput]:
    """Count the runs that ended in each of the time slots until a time, empty slots included."""
    rows = await connection.fetch(queries["ended"], until - slots * width, until, width)
    return [Throughput(**dict(row)) for row in rows]
