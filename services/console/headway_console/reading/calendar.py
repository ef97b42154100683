"""The ledger of one manifest by days, for a calendar."""

from datetime import date, datetime
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

queries = Queries("headway_console.reading", "sql/calendar.sql")

# A month with a fire each minute; with more, the latest are counted.
COUNTED = 50_000
_STRETCHES = 500


class DayCount(Struct, frozen=True, kw_only=True):
    """The number of fires of a day with the same result; `reason` is why they were skipped."""

    day: date
    state: str
    reason: str
    fires: int


class Stretch(Struct, frozen=True, kw_only=True):
    """Due times that were skipped together."""

    first_due_at: datetime
    last_due_at: datetime
    state: str
    reason: str


class Past(Struct, frozen=True, kw_only=True):
    """The results of a span; not `in_full` if it had more fires than are counted."""

    days: list[DayCount]
    stretches: list[Stretch]
    in_full: bool


async def read_past(
    connection: Connection, manifest: UUID, *, since: datetime, until: datetime, zone: str
) -> Past:
    """Count the decisions about a manifest by day, in its zone."""
    days = await connection.fetch(queries["days"], manifest, since, until, zone, COUNTED)
    stretches = await connection.fetch(queries["stretches"], manifest, since, until, _STRETCHES)
    return Past(
        days=[DayCount(**dict(row)) for row in days],
        stretches=[Stretch(**dict(row)) for row in stretches],
        in_full=sum(row["fires"] for row in days) < COUNTED,
    )
