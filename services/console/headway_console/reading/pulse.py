"""Whether anything has changed since somebody looked."""

from datetime import datetime, timedelta

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

queries = Queries("headway_console.reading", "sql/pulse.sql")

_LATELY = timedelta(hours=24)


class Pulse(Struct, frozen=True):
    """Two of them differ if something was written down between them."""

    decided: int
    happened: int
    ticked_at: datetime | None


async def read_pulse(connection: Connection, *, now: datetime) -> Pulse:
    """The latest that both services have written down."""
    row = await connection.fetchrow(queries["pulse"], now - _LATELY)
    if row is None:
        raise LookupError("a statement without FROM has always one row")
    return Pulse(row["decided"], row["happened"], row["ticked_at"])
