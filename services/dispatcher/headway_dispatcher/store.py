"""What the passes of the dispatcher share: schema, queries, outbox, history."""

from datetime import datetime

from headway_history import History
from headway_jetstream_kit import Message
from headway_postgres_kit import Connection, Database, Migrations, Queries, storable
from headway_relay import Outbox

SCHEMA = "dispatcher"
MIGRATIONS = Migrations("headway_dispatcher", SCHEMA)
OUTBOX = Outbox(SCHEMA)
HISTORY = History(SCHEMA)
SOURCE = "headway/dispatcher"

works = Queries("headway_dispatcher", "sql/work_queue.sql")
gates = Queries("headway_dispatcher", "sql/gate.sql")
leases = Queries("headway_dispatcher", "sql/lease.sql")
workers = Queries("headway_dispatcher", "sql/worker.sql")


async def read_now(connection: Connection) -> datetime:
    """PostgreSQL's time, to be read after the locks were taken."""
    now: datetime = await connection.fetchval(works["now"])
    return now


async def reject(database: Database, message: Message, reason: str) -> None:
    """Keep a message that could not be handled, with its bytes."""
    async with database.acquire() as connection:
        await connection.execute(
            works["reject"],
            storable(message.subject),
            {storable(key): storable(value) for key, value in message.headers.items()},
            message.body,
            storable(reason),
        )
