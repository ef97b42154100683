"""Events of history, and new ones as they arrive."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_contract.fields import ManifestId, Name
from headway_contract.operations import HistoryEvent
from headway_history.store import Numbers
from headway_postgres_kit import Connection, Queries
from msgspec import Struct, structs

from headway_console.reading.lists import Listing, Page, Texts, escaped, read_row

queries = Queries("headway_console.reading", "sql/events.sql")

# Number of the newest events that a search without an index reads.
SEARCHED = 6_000
# New events are searched in the latest partitions only.
_NEWS = timedelta(hours=24)
_NEWS_AT_ONCE = 5_000

_EVENTS = Listing("events", "recorded_at", kind=int)
_PREFIX, _VERSION = "headway.", ".v"


class EventFilter(Struct, frozen=True, kw_only=True):
    """Filters of events; types as in `run.completed`, `dead_letter.*`, or the full name."""

    type: Texts = ()
    work: UUID | None = None
    run: UUID | None = None
    job: Name | None = None
    group: Name | None = None
    manifest: ManifestId | None = None
    accepted: bool | None = None
    since: datetime | None = None
    before: datetime | None = None

    @property
    def patterns(self) -> list[str] | None:
        """Return the types as patterns of SQL; `None` without types."""
        return [type_pattern(type_) for type_ in self.type] or None


class EventRow(HistoryEvent, frozen=True, kw_only=True):
    """One event with its manifest and job, which are known while the work is kept."""

    manifest: str | None = None
    job: str | None = None


def type_pattern(given: str) -> str:
    """Return the SQL pattern of a type as people write it."""
    full = given if given.startswith(_PREFIX) else _PREFIX + given
    pattern = escaped(full).replace("*", "%")
    return pattern if _VERSION in pattern else f"{pattern}{_VERSION}%"


async def page_of_events(
    connection: Connection, filters: EventFilter, *, cursor: str | None = None, limit: int = 100
) -> Page[EventRow]:
    """List events of history, the newest first."""
    _, below = _EVENTS.time_and_id(cursor)
    if filters.run is not None and filters.work is None:
        # The index is by work. If the run is gone, the newest events are searched.
        work = await connection.fetchval(queries["work_of_run"], filters.run)
        filters = structs.replace(filters, work=work)
    times = (below, filters.since, filters.before)
    narrow = (*times, filters.patterns, filters.run, filters.accepted)
    wanted = (limit + 1, filters.job, filters.group, filters.manifest)
    if filters.work is not None:
        rows = await connection.fetch(queries["feed_of_work"], filters.work, *narrow, *wanted)
    else:
        rows = await connection.fetch(queries["feed"], *narrow, SEARCHED, *wanted)
    page = _EVENTS.page(*_whole_rows(rows, limit), event_row)
    if page.next is not None or filters.work is not None:
        return page
    reached = await connection.fetchrow(queries["reached"], *times, SEARCHED)
    return _EVENTS.searched(page, reached)


def _whole_rows(rows: list[Any], limit: int) -> tuple[list[Any], int]:
    """Return a page of rows and its size: it ends with the last event of a row of history.

    A cursor is the number of a row of history, which may have several events.
    """
    size = limit
    while limit <= size < len(rows) and rows[size]["id"] == rows[size - 1]["id"]:
        size += 1
    # If there may be more, a row follows the page.
    return (rows if size < len(rows) or size == limit else [*rows, rows[-1]]), size


async def read_position(connection: Connection, *, now: datetime) -> Numbers:
    """Return the position after the newest event."""
    return Numbers(await connection.fetchval(queries["last_number"], now - _NEWS))


async def new_numbers(
    connection: Connection, numbers: Numbers, *, now: datetime, elapsed: float
) -> list[int]:
    """Return the numbers of the events since the last call; `elapsed` is a monotonic clock."""
    rows = await connection.fetch(queries["numbers"], numbers.settled, _NEWS_AT_ONCE, now - _NEWS)
    return numbers.news((row["id"] for row in rows), elapsed)


async def read_events(
    connection: Connection, new: Sequence[int], filters: EventFilter, *, now: datetime
) -> list[EventRow]:
    """Return the events with these numbers that match the filters, the oldest first."""
    if not new:
        return []
    rows = await connection.fetch(
        queries["these"],
        *(new, now - _NEWS, filters.patterns, filters.work, filters.run, filters.job),
        *(filters.group, filters.accepted, filters.manifest),
    )
    return [event_row(row) for row in rows]


async def read_pulse(connection: Connection) -> Any:
    """Return a row that changes when the scheduler has decided something."""
    return await connection.fetchrow(queries["pulse"])


def event_row(row: Any) -> EventRow:
    """Make an event of its row."""
    return read_row(EventRow, row, number=row["id"], id=row["event_id"])
