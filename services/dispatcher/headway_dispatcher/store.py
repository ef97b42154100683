"""What the passes of the dispatcher share: schema, queries, outbox, history, time."""

from datetime import datetime

from headway_decisions.runs.reaping import Witness
from headway_history import History
from headway_postgres_kit import DATABASE_CLOCK, Clock, Connection, Migrations, Queries
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

# Had alone by whoever buries a manifest, and shared by whoever brings work into the queue.
BURY_LOCK = 0x48570011

works = Queries("headway_dispatcher", "sql/work_queue.sql")
gates = Queries("headway_dispatcher", "sql/gate.sql")
leases = Queries("headway_dispatcher", "sql/lease.sql")
workers = Queries("headway_dispatcher", "sql/worker.sql")
news_queries = Queries("headway_dispatcher", "sql/progress.sql")
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
    """What time it is, twice over.

    `real` is PostgreSQL's: who was heard when, how long a worker is waited for. `schedule` is
    the time that schedules and records go by; a test may bend it, and it is the same
    otherwise.
    """

    real: datetime
    schedule: datetime


async def read_now(connection: Connection) -> datetime:
    """PostgreSQL's time, to be read after the locks were taken."""
    now: datetime = await connection.fetchval(works["now"])
    return now


async def read_witness(connection: Connection, name: str) -> Witness | None:
    """How a dispatcher's own heartbeat was heard; none if it never was."""
    row = await connection.fetchrow(workers["witness"], name)
    return None if row is None else Witness(**dict(row))


async def read_times(connection: Connection, clock: Clock) -> Times:
    """Both times, to be read after the locks were taken."""
    return await times_at(await read_now(connection), connection, clock)


async def times_at(real: datetime, connection: Connection, clock: Clock) -> Times:
    """Both times where PostgreSQL's is known; one reading will do if they are of one clock."""
    schedule = real if clock is DATABASE_CLOCK else await clock.now(connection)
    return Times(real=real, schedule=schedule)
