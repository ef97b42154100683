"""The overview: health, activity, and problems."""

from datetime import datetime, timedelta
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.dead_letters import FailureGroup, page_of_failures
from headway_console.reading.groups import GroupRow, page_of_groups
from headway_console.reading.paging import read_row
from headway_console.reading.system import Health, read_health

queries = Queries("headway_console.reading", "sql/overview.sql")

_DAY = timedelta(hours=24)
_NOW = timedelta(minutes=5)
_FEW = 8
_BUSY_LOOKED_AT = 500


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


class Counts(Struct, frozen=True, kw_only=True):
    """Counts of the overview."""

    manifests: int
    disabled: int
    blocked: int
    troubled: int
    dead_letters: int
    workers: int
    slots: int


class Overview(Struct, frozen=True, kw_only=True):
    """The overview; `lately` covers the last five minutes, `day` the last 24 hours."""

    now: datetime
    health: Health
    counts: Counts
    lately: Throughput
    day: list[Throughput]
    coming: list[Coming]
    failing: list[Failing]
    failures: list[FailureGroup]
    groups: list[GroupRow]


async def read_overview(
    connection: Connection,
    *,
    now: datetime,
    heard_since: datetime,
    width: timedelta = timedelta(minutes=30),
    groups: int = 50,
) -> Overview:
    """Return the overview; workers heard since then are alive."""
    counts = await connection.fetchrow(queries["counts"], heard_since)
    coming = await connection.fetch(queries["due_next"], _FEW, _BUSY_LOOKED_AT)
    failing = await connection.fetch(queries["failing"], now - _DAY, _FEW)
    failures = await page_of_failures(connection, limit=_FEW)
    [lately, *_] = await read_throughput(connection, since=now - _NOW, until=now, width=_NOW)
    return Overview(
        now=now,
        health=await read_health(connection, now=now),
        counts=Counts(**dict(counts or {})),
        lately=lately,
        day=await read_throughput(connection, since=now - _DAY, until=now, width=width),
        coming=[read_row(Coming, row) for row in coming],
        failing=[Failing(**dict(row)) for row in failing],
        failures=failures.items,
        groups=(await page_of_groups(connection, limit=groups)).items,
    )


async def read_throughput(
    connection: Connection, *, since: datetime, until: datetime, width: timedelta
) -> list[Throughput]:
    """Count the runs that ended in each time slot, empty slots included."""
    rows = await connection.fetch(queries["ended"], since, until, width)
    return [Throughput(**dict(row)) for row in rows]
