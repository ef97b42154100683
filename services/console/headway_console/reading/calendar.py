"""The ledger of one manifest by days, for a calendar."""

from datetime import date, datetime
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

queries = Queries("headway_console.reading", "sql/calendar.sql")

# A month of a fire time each minute; of what fires more often the latest are counted.
COUNTED = 50_000
_STRETCHES = 500


class DayCount(Struct, frozen=True, kw_only=True):
    """So many fires of one day came to this; `reason` is the kind of why, for those skipped."""

    day: date
    state: str
    reason: str
    fires: int


class Stretch(Struct, frozen=True, kw_only=True):
    """Times that were skipped together."""

    first_due_at: datetime
    last_due_at: datetime
    state: str
    reason: str


class Past(Struct, frozen=True, kw_only=True):
    """What a span came to; `in_full` unless it had more fires than are counted."""

    days: list[DayCount]
    stretches: list[Stretch]
    in_full: bool


async def read_past(
    connection: Connection, manifest: UUID, *, since: datetime, until: datetime, zone: str
) -> Past:
    """What was decided about a manifest on the days of a span, by the clock of its zone."""
    days = await connection.fetch(queries["days"], manifest, since, until, zone, COUNTED)
    stretches = await connection.fetch(queries["stretches"], manifest, since, until, _STRETCHES)
    return Past(
        days=[DayCount(**dict(row)) for row in days],
        stretches=[Stretch(**dict(row)) for row in stretches],
        in_full=sum(row["fires"] for row in days) < COUNTED,
    )
