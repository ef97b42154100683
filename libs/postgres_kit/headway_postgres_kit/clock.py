"""Schedule time: PostgreSQL's clock, or a clock that a test sets on its `Database`."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from headway_postgres_kit.database import Connection


class Clock(Protocol):
    """Returns the time inside a transaction, after its locks were taken."""

    async def now(self, connection: "Connection") -> datetime:
        """Return the time of the next decision."""
        ...

    def passed(self, measured: timedelta) -> timedelta:
        """Convert a duration that PostgreSQL measured to a duration of this clock."""
        return measured


class DatabaseClock(Clock):
    """PostgreSQL's own clock, the same for every process."""

    async def now(self, connection: "Connection") -> datetime:
        """Read the server's wall clock, not the start of the transaction."""
        now: datetime = await connection.fetchval("SELECT clock_timestamp()")
        return now


DATABASE_CLOCK = DatabaseClock()
