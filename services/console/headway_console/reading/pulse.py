"""A cheap check whether the scheduler has decided something."""

from datetime import datetime

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

queries = Queries("headway_console.reading", "sql/pulse.sql")


class Pulse(Struct, frozen=True):
    """Differs from an earlier one if the scheduler has decided something in between."""

    decided: int
    ticked_at: datetime | None


async def read_pulse(connection: Connection) -> Pulse:
    """Return the number of the latest decision and the time of the latest tick."""
    row = await connection.fetchrow(queries["pulse"])
    if row is None:
        raise LookupError("a statement without FROM has always one row")
    return Pulse(row["decided"], row["ticked_at"])
