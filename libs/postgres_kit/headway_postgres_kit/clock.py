"""Where the time of a decision comes from: PostgreSQL, or a clock that somebody else owns."""

from datetime import datetime, timedelta
from typing import Protocol

from headway_postgres_kit.database import Connection


class Clock(Protocol):
    """Tells the time inside a transaction, after its locks were taken."""

    async def now(self, connection: Connection) -> datetime:
        """The time of what is decided next."""
        ...

    def passed(self, measured: timedelta) -> timedelta:
        """How much has passed by this clock while PostgreSQL's own has measured so much."""
        return measured


class DatabaseClock(Clock):
    """PostgreSQL's own clock, the same for every process."""

    async def now(self, connection: Connection) -> datetime:
        """Read the server's wall clock, not the start of the transaction."""
        now: datetime = await connection.fetchval("SELECT clock_timestamp()")
        return now


DATABASE_CLOCK = DatabaseClock()
