"""The scheduler's schema: migrations, queries, outbox, audit and locks."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

from headway_clock import new_id
from headway_history import History, Record
from headway_postgres_kit import Connection, Database, Migrations, Queries, StatementBatch
from headway_relay import Outbox, Rejected
from headway_service_kit.idempotency import IdempotencyStore

SCHEMA = "scheduler"
SOURCE = "headway/scheduler"
MIGRATIONS = Migrations("headway_scheduler", SCHEMA)
OUTBOX = Outbox(SCHEMA)
HISTORY = History(SCHEMA)
REJECTED = Rejected(SCHEMA)
IDEMPOTENCY = IdempotencyStore(SCHEMA)

manifests = Queries("headway_scheduler", "sql/manifest.sql")
applications = Queries("headway_scheduler", "sql/application.sql")
groups = Queries("headway_scheduler", "sql/group.sql")
occurrences = Queries("headway_scheduler", "sql/occurrence.sql")
works = Queries("headway_scheduler", "sql/work.sql")
pauses = Queries("headway_scheduler", "sql/pause.sql")
enqueued = Queries("headway_scheduler", "sql/enqueued.sql")
leaders = Queries("headway_scheduler", "sql/leader.sql")
metric_queries = Queries("headway_scheduler", "sql/metrics.sql")
notifications = Queries("headway_scheduler", "sql/notification.sql")
heals = Queries("headway_scheduler", "sql/healing.sql")

TICK_LOCK = 0x48570001
DECLARE_LOCK = 0x48570002


@asynccontextmanager
async def writing(database: Database) -> AsyncIterator[tuple[Connection, datetime]]:
    """Open a transaction, with the schedule time at its begin."""
    async with database.transaction() as connection:
        yield connection, await database.clock.now(connection)


async def audit(
    connection: Connection,
    kind: str,
    source: str,
    entries: Iterable[tuple[str, Any]],
    *,
    now: datetime,
) -> None:
    """Write audit entries of one kind, each a subject and its data."""
    writes = StatementBatch()
    audit_to(writes, kind, source, entries, now=now)
    await writes.send(connection)


def audit_to(
    writes: StatementBatch,
    kind: str,
    source: str,
    entries: Iterable[tuple[str, Any]],
    *,
    now: datetime,
) -> None:
    """Write audit entries as part of a batch of statements."""
    records = [
        Record(
            event_id=str(new_id()),
            type=kind,
            subject=subject,
            source=source,
            occurred_at=now,
            data=data,
        )
        for subject, data in entries
    ]
    HISTORY.append_to(writes, records, now=now)


def operator(request: Any) -> str:
    """Return the author of a request as the audit names it."""
    return f"operator/{request.actor or 'unknown'}"


def columns(items: Sequence[Any], *fields: str) -> list[list[Any]]:
    """Return fields of items as the array parameters of a statement."""
    return [list(map(attrgetter(field), items)) for field in fields]


async def lock_manifests(connection: Connection, ids: Iterable[UUID]) -> list[UUID]:
    """Lock manifests in the order of their ids; returns the ids that exist.

    This is a statement of its own: other rows that the locking statement reads may be older than
    the lock.
    """
    rows = await connection.fetch(manifests["lock"], sorted(set(ids)))
    return [row["id"] for row in rows]


async def enqueue_role_is_missing(database: Database) -> bool:
    """Return whether the role is missing that lets applications enqueue and nothing else."""
    async with database.acquire() as connection:
        missing: bool = await connection.fetchval(enqueued["role_is_missing"])
    return missing
