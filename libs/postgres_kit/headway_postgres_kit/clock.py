"""Schedule time: PostgreSQL's clock, or a clock that a test sets on its `Database`."""

from datetime import datetime, timedelta

from headway_postgres_kit.hot_connections import Connection


class Clock:
    """PostgreSQL's own clock, the same for every process."""

    async def now(self, connection: Connection) -> datetime:
        """Read the server's wall clock; call it after the transaction has taken its locks."""
        now: datetime = await connection.fetchval("SELECT clock_timestamp()")
        return now

    def passed(self, measured: timedelta) -> timedelta:
        """Convert a duration that PostgreSQL measured to a duration of this clock."""
        return measured


DATABASE_CLOCK = Clock()
