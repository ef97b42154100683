"""Looking at history: what was, and what happens now.

It is read from the database and not from the streams. That takes no message away from anybody,
and it says what was made of each event: accepted, or refused and why.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_history.numbers import Numbers
from headway_postgres_kit import Connection, Database
from msgspec import Struct

from headway_dispatcher.store import events as queries

_PAGE = 1000
_PREFIX, _VERSION = "headway.", ".v"


class HistoryEvent(Struct, frozen=True, kw_only=True):
    """One line of history."""

    number: int
    id: str
    type: str
    subject: str
    source: str
    occurred_at: datetime
    recorded_at: datetime
    accepted: bool
    refusal: str | None
    work: UUID | None
    run: UUID | None
    lease: UUID | None
    data: Any


class Filters(Struct, frozen=True, kw_only=True):
    """Which events to show; what is none lets everything through."""

    types: Sequence[str] = ()
    job: str | None = None
    work: UUID | None = None
    run: UUID | None = None

    @property
    def arguments(self) -> tuple[list[str] | None, str | None, UUID | None, UUID | None]:
        """The filters as the queries take them."""
        patterns = [type_pattern(one) for one in self.types]
        return patterns or None, self.job, self.work, self.run


def type_pattern(given: str) -> str:
    """A pattern for types out of what people write: `run.completed`, `run.*`, or the full name."""
    full = given if given.startswith(_PREFIX) else _PREFIX + given
    pattern = full.replace("_", r"\_").replace("*", "%")
    return pattern if _VERSION in pattern else f"{pattern}{_VERSION}%"


async def latest(
    database: Database, filters: Filters, *, count: int, since: datetime | None = None
) -> list[HistoryEvent]:
    """The newest events, oldest first."""
    async with database.acquire() as connection:
        below = await _last_number(connection) + 1
        rows = await connection.fetch(queries["latest"], below, *filters.arguments, since, count)
    return [_event(row) for row in reversed(rows)]


async def last_number(database: Database) -> int:
    """The number of the newest event."""
    async with database.acquire() as connection:
        return await _last_number(connection)


async def news(
    database: Database, numbers: Numbers, filters: Filters, *, now: float
) -> list[HistoryEvent]:
    """What has been written down since the last time."""
    async with database.acquire() as connection:
        rows = await connection.fetch(queries["numbers"], numbers.settled, 10 * _PAGE)
        new = numbers.news((row["id"] for row in rows), now)
        found = await connection.fetch(queries["these"], new, *filters.arguments) if new else []
    return [_event(row) for row in found]


async def export(
    database: Database, *, since: datetime | None, until: datetime | None
) -> AsyncIterator[list[HistoryEvent]]:
    """All of a span of time, page by page, in one snapshot of the database."""
    async with (
        database.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        above = 0
        while True:
            rows = await connection.fetch(queries["span"], above, since, until, _PAGE)
            if not rows:
                return
            yield [_event(row) for row in rows]
            above = rows[-1]["id"]


async def _last_number(connection: Connection) -> int:
    number: int = await connection.fetchval(queries["last_number"])
    return number


def _event(row: Any) -> HistoryEvent:
    return HistoryEvent(
        number=row["id"],
        id=row["event_id"],
        type=row["type"],
        subject=row["subject"],
        source=row["source"],
        occurred_at=row["occurred_at"],
        recorded_at=row["recorded_at"],
        accepted=row["accepted"],
        refusal=row["refusal"],
        work=row["work_id"],
        run=row["run_id"],
        lease=row["lease_id"],
        data=row["data"],
    )
