"""The ledger of one manifest: fired and skipped due times, with reasons and outcomes."""

from datetime import datetime
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, page_of, read_cursor, read_row

queries = Queries("headway_console.reading", "sql/occurrences.sql")

_LIST = "occurrences"


class Occurrence(Struct, frozen=True, kw_only=True):
    """One decision about a due time or a range of them.

    `state` is the outcome of its work, `under_way`, `owed` (it waits for a slot), or `skipped` with
    a reason.
    """

    cause: str
    first_due_at: datetime
    last_due_at: datetime
    state: str
    reason: str | None
    decided_at: datetime
    actor: str | None
    work: UUID | None
    run: UUID | None
    started_at: datetime | None
    finished_at: datetime | None


class Span(Struct, frozen=True, kw_only=True):
    """Decisions about a span of time, the oldest first; `more` if there are too many to show."""

    occurrences: list[Occurrence]
    more: bool = False


async def read_span(
    connection: Connection, manifest: UUID, *, since: datetime, until: datetime, limit: int = 5000
) -> Span:
    """Return the decisions about a manifest in a span."""
    rows = await connection.fetch(queries["between"], manifest, since, until, limit + 1)
    return Span(occurrences=[_occurrence(row) for row in rows[:limit]], more=len(rows) > limit)


async def page_of_occurrences(
    connection: Connection, manifest: UUID, *, cursor: str | None = None, limit: int = 50
) -> Page[Occurrence]:
    """List the decisions about a manifest, the latest first."""
    place = read_cursor(_LIST, cursor)
    after = (None, None) if place is None else (place.at, str(place.id))
    rows = await connection.fetch(queries["last"], manifest, *after, limit + 1)
    return page_of(_LIST, rows, limit, _occurrence, "first_due_at", "cause")


def _occurrence(row: Any) -> Occurrence:
    state = row["decision"] if row["decision"] != "queued" else row["outcome"] or "under_way"
    return read_row(Occurrence, row, state=state, work=row["work_id"])
