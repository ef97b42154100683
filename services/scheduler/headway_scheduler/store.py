"""What the scheduler reads and writes: its schema, its queries, its locks."""

from collections.abc import Iterable
from uuid import UUID

from headway_history import History
from headway_postgres_kit import Connection, Database, Migrations, Queries
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
enqueued = Queries("headway_scheduler", "sql/enqueued.sql")
leaders = Queries("headway_scheduler", "sql/leader.sql")
metric_queries = Queries("headway_scheduler", "sql/metrics.sql")
notifications = Queries("headway_scheduler", "sql/notification.sql")
heals = Queries("headway_scheduler", "sql/healing.sql")

TICK_LOCK = 0x48570001
DECLARE_LOCK = 0x48570002


async def lock_manifests(connection: Connection, ids: Iterable[UUID]) -> list[UUID]:
    """Lock manifests in a fixed order; returns those that are there.

    A statement of its own, before any that reads them: what a statement reads beside the
    rows that it locks may be older than the lock.
    """
    rows = await connection.fetch(manifests["lock"], sorted(set(ids)))
    return [row["id"] for row in rows]


async def enqueue_role_is_missing(database: Database) -> bool:
    """Whether applications lack the role by which they may enqueue and do nothing else."""
    async with database.acquire() as connection:
        missing: bool = await connection.fetchval(enqueued["role_is_missing"])
    return missing
