"""Export history: every event, with its refusal if it was refused."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_postgres_kit import Database
from msgspec import Struct

from headway_dispatcher.store import events as queries

_PAGE = 1000


class HistoryEvent(Struct, frozen=True, kw_only=True):
    """One event of history."""

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
    """Yield the events of a time span page by page, from one snapshot of the database."""
    async with (
        database.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        above = 0
        while rows := await connection.fetch(queries["span"], above, since, until, _PAGE):
            yield [msgspec.convert(dict(row), HistoryEvent) for row in rows]
            above = rows[-1]["number"]
