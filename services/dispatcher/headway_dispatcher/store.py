"""What the passes of the dispatcher share: schema, queries, outbox, history."""

from datetime import datetime

from headway_history import History
from headway_postgres_kit import Connection, Migrations, Queries
from headway_relay import Outbox, Rejected

SCHEMA = "dispatcher"
MIGRATIONS = Migrations("headway_dispatcher", SCHEMA)
OUTBOX = Outbox(SCHEMA)
HISTORY = History(SCHEMA)
REJECTED = Rejected(SCHEMA)
SOURCE = "headway/dispatcher"

works = Queries("headway_dispatcher", "sql/work_queue.sql")
gates = Queries("headway_dispatcher", "sql/gate.sql")
leases = Queries("headway_dispatcher", "sql/lease.sql")
workers = Queries("headway_dispatcher", "sql/worker.sql")


async def read_now(connection: Connection) -> datetime:
    """PostgreSQL's time, to be read after the locks were taken."""
    now: datetime = await connection.fetchval(works["now"])
    return now
