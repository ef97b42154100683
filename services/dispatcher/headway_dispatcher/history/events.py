"""History as it is exported: every event, and what was made of it."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_postgres_kit import Database
from msgspec import Struct

from headway_dispatcher.store import events as queries

_PAGE = 1000


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
