"""The first page: is all well, what goes on, what needs somebody."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.dead_letters import FailureGroup, page_of_failures
from headway_console.reading.groups import GroupRow, page_of_groups
from headway_console.reading.system import Health, read_health

queries = Queries("headway_console.reading", "sql/overview.sql")

_DAY = timedelta(hours=24)
_NOW = timedelta(minutes=5)
_FEW = 8
_BUSY_LOOKED_AT = 500


class Throughput(Struct, frozen=True, kw_only=True):
    """What ended in a stretch of time that begins at `at`."""

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
    """How many there are."""

    manifests: int
    disabled: int
    blocked: int
    troubled: int
    dead_letters: int
    workers: int
    slots: int


class Overview(Struct, frozen=True, kw_only=True):
    """How things stand. `lately` is of the last five minutes, `day` of the last 24 hours."""

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
    """How things stand; workers heard since then are alive."""
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
        coming=[_coming(row) for row in coming],
        failing=[Failing(**dict(row)) for row in failing],
        failures=failures.items,
        groups=(await page_of_groups(connection, limit=groups)).items,
    )


async def read_throughput(
    connection: Connection, *, since: datetime, until: datetime, width: timedelta
) -> list[Throughput]:
    """What ended in each stretch between two times; stretches in which nothing did, too."""
    rows = await connection.fetch(queries["ended"], since, until, width)
    return [Throughput(**dict(row)) for row in rows]


def _coming(row: Any) -> Coming:
    return Coming(
        id=row["id"],
        external_id=row["external_id"],
        job=row["job"],
        group=row["group_name"],
        fires_at=row["fires_at"],
    )
