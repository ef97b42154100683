"""A clock that shows the time that it was set to, and never goes back."""

from datetime import UTC, datetime, timedelta

from headway_postgres_kit import Clock, Connection


class VirtualClock(Clock):
    """The schedule time of a world."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    async def now(self, connection: Connection) -> datetime:  # noqa: ARG002 - from Clock
        """Return the time that the clock was set to."""
        return self.at

    def passed(self, measured: timedelta) -> timedelta:  # noqa: ARG002 - from Clock
        """Return zero: the clock stands still while anything is in flight."""
        return timedelta(0)

    def advance(self, to: datetime) -> None:
        """Set the clock to a later time."""
        self.at = max(self.at, to)


def instant(when: str | datetime) -> datetime:
    """Convert a time that a user wrote; a time without a zone is in UTC."""
    try:
        at = datetime.fromisoformat(when) if isinstance(when, str) else when
    except ValueError:
        at = None
    if not isinstance(at, datetime):
        raise ValueError(f"invalid time {when!r}: write it like '2027-04-01 12:00'")
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
