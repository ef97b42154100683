"""The ledger of one manifest: what fired, what was skipped and why, and how it ended."""

from datetime import datetime
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, page_of, read_cursor

queries = Queries("headway_console.reading", "sql/occurrences.sql")

_LIST = "occurrences"


class Occurrence(Struct, frozen=True, kw_only=True):
    """One decision, or one about a stretch of due times.

    `state` is one word for how it looks: the outcome of its work, `under_way`, `owed` (it waits for
    room) or `skipped`, with the reason.
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
    """What was decided about the times of a manifest in a span, for a calendar."""
    rows = await connection.fetch(queries["between"], manifest, since, until, limit + 1)
    return Span(occurrences=[_occurrence(row) for row in rows[:limit]], more=len(rows) > limit)


async def page_of_occurrences(
    connection: Connection, manifest: UUID, *, cursor: str | None = None, limit: int = 50
) -> Page[Occurrence]:
    """A page of decisions about a manifest, the latest first."""
    place = read_cursor(_LIST, cursor)
    after = (None, None) if place is None else (place.at, str(place.id))
    rows = await connection.fetch(queries["last"], manifest, *after, limit + 1)
    return page_of(_LIST, rows, limit, _occurrence, "first_due_at", "cause")


def _occurrence(row: Any) -> Occurrence:
    return Occurrence(
        state=_state(row),
        work=row["work_id"],
        **{
            name: row[name]
            for name in (
                *("cause", "first_due_at", "last_due_at", "reason", "decided_at", "actor"),
                *("run", "started_at", "finished_at"),
            )
        },
    )


def _state(row: Any) -> str:
    if row["decision"] != "queued":
        return str(row["decision"])
    return str(row["outcome"] or "under_way")
