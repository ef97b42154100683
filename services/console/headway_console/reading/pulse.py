"""Whether anything has changed since somebody looked, beside what history of runs tells."""

from datetime import datetime

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

queries = Queries("headway_console.reading", "sql/pulse.sql")


class Pulse(Struct, frozen=True):
    """Two of them differ if the scheduler has decided something between them."""

    decided: int
    ticked_at: datetime | None


async def read_pulse(connection: Connection) -> Pulse:
    """The latest that the scheduler has written down."""
    row = await connection.fetchrow(queries["pulse"])
    if row is None:
        raise LookupError("a statement without FROM has always one row")
    return Pulse(row["decided"], row["ticked_at"])
