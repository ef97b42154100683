"""The schema, queries, outbox, history, locks and times that all passes share."""

from collections.abc import Iterable
from datetime import datetime
from uuid import UUID

from headway_decisions.runs.reaping import Witness
from headway_history import History
from headway_postgres_kit import DATABASE_CLOCK, Connection, Database, Migrations, Queries
from headway_relay import Outbox, Rejected
from headway_service_kit.idempotency import IdempotencyStore
from msgspec import Struct

SCHEMA = "dispatcher"
MIGRATIONS = Migrations("headway_dispatcher", SCHEMA)
OUTBOX = Outbox(SCHEMA)
HISTORY = History(SCHEMA)
REJECTED = Rejected(SCHEMA)
IDEMPOTENCY = IdempotencyStore(SCHEMA)
SOURCE = "headway/dispatcher"

# One gate at a time, over all dispatchers. It is taken before the statement that counts: in the
# same statement the snapshot would be older than the lock.
GATE_LOCK = 0x48570010
# Exclusive for a transaction that writes tombstones, shared for one that queues work. Otherwise one
# dispatcher could queue work of a manifest while another, which does not see that work yet, deletes
# the manifest's rows.
TOMBSTONE_LOCK = 0x48570011

works = Queries("headway_dispatcher", "sql/work_queue.sql")
gates = Queries("headway_dispatcher", "sql/gate.sql")
leases = Queries("headway_dispatcher", "sql/lease.sql")
workers = Queries("headway_dispatcher", "sql/worker.sql")
progress_queries = Queries("headway_dispatcher", "sql/progress.sql")
letter_queries = Queries("headway_dispatcher", "sql/dead_letter.sql")
canary_queries = Queries("headway_dispatcher", "sql/canary.sql")
cancel_queries = Queries("headway_dispatcher", "sql/cancel.sql")
explanations = Queries("headway_dispatcher", "sql/explain.sql")
prune_queries = Queries("headway_dispatcher", "sql/tombstone.sql")
projections = Queries("headway_dispatcher", "sql/projection.sql")
retention = Queries("headway_dispatcher", "sql/retention.sql")
events = Queries("headway_dispatcher", "sql/events.sql")
metric_queries = Queries("headway_dispatcher", "sql/metrics.sql")
heals = Queries("headway_dispatcher", "sql/healing.sql")
consumer_queries = Queries("headway_dispatcher", "sql/consumer.sql")


class Times(Struct, frozen=True, kw_only=True):
    """Two times, which differ only if a test sets its own clock.

    `real` is PostgreSQL's and decides about liveness. `schedule` decides about everything else.
    """

    real: datetime
    schedule: datetime


async def read_now(connection: Connection) -> datetime:
    """Read PostgreSQL's time; call it after taking locks."""
    now: datetime = await connection.fetchval(works["now"])
    return now


async def read_witness(connection: Connection, name: str) -> Witness | None:
    """Read when a dispatcher's own heartbeat was received; `None` if it never was."""
    row = await connection.fetchrow(workers["witness"], name)
    return None if row is None else Witness(**dict(row))


async def read_times(
    connection: Connection, database: Database, *, real: datetime | None = None
) -> Times:
    """Read both times, except a known `real`; call it after taking locks."""
    real = real or await read_now(connection)
    clock = database.clock
    schedule = real if clock is DATABASE_CLOCK else await clock.now(connection)
    return Times(real=real, schedule=schedule)


async def share_tombstone_lock(connection: Connection) -> None:
    """Keep new tombstones away until this transaction ends."""
    await connection.execute(prune_queries["share_lock"], TOMBSTONE_LOCK)


async def pruned_manifests(connection: Connection, manifests: Iterable[UUID | None]) -> set[UUID]:
    """Return those of the manifests that have a tombstone."""
    known = {manifest for manifest in manifests if manifest is not None}
    if not known:
        return set()
    rows = await connection.fetch(prune_queries["pruned"], list(known))
    return {row["manifest_id"] for row in rows}
