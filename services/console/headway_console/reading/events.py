"""Events: what history tells, and what is added to it while somebody looks."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_history.store import Numbers
from headway_postgres_kit import Connection, Queries
from msgspec import Struct, structs

from headway_console.reading.pages import Page, page_of, searched, time_and_number

queries = Queries("headway_console.reading", "sql/events.sql")

# Among how many of the newest events a search without an index looks.
LOOKED_THROUGH = 6_000
# How far back news is looked for, so that only the latest days of history are opened.
_NEWS_HOURS = 24
_NEWS_AT_ONCE = 5_000

_LIST = "events"
_PREFIX, _VERSION = "headway.", ".v"


class EventFilter(Struct, frozen=True, kw_only=True):
    """Which events are meant; what is left out does not matter.

    Types are as people write them: `run.completed`, `dead_letter.*`, or the full name.
    """

    types: tuple[str, ...] = ()
    work: UUID | None = None
    run: UUID | None = None
    job: str | None = None
    group: str | None = None
    manifest: str | None = None
    accepted: bool | None = None
    since: datetime | None = None
    before: datetime | None = None

    @property
    def patterns(self) -> list[str] | None:
        """The types as patterns for the database."""
        return [type_pattern(one) for one in self.types] or None


class EventRow(Struct, frozen=True, kw_only=True):
    """One event, and what was made of it: accepted, or refused and why.

    Which manifest and job it is about is told where its work is still kept.
    """

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
    manifest: str | None = None
    job: str | None = None


def type_pattern(given: str) -> str:
    """A pattern for types out of what people write."""
    full = given if given.startswith(_PREFIX) else _PREFIX + given
    pattern = full.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_").replace("*", "%")
    return pattern if _VERSION in pattern else f"{pattern}{_VERSION}%"


async def page_of_events(
    connection: Connection, asked: EventFilter, *, cursor: str | None = None, limit: int = 100
) -> Page[EventRow]:
    """A page of events, the newest first."""
    _, below = time_and_number(_LIST, cursor)
    if asked.run is not None and asked.work is None:
        # Events are found by their work; a run that is forgotten is looked for among the newest.
        asked = structs.replace(
            asked, work=await connection.fetchval(queries["work_of_run"], asked.run)
        )
    where = (asked.work, below, asked.since, asked.before)
    narrow = (*where, asked.patterns, asked.run, asked.accepted, LOOKED_THROUGH, limit + 1)
    of_work = (asked.job, asked.group)
    rows = await (
        connection.fetch(queries["feed"], *narrow, *of_work)
        if asked.manifest is None
        else connection.fetch(queries["feed_of"], *narrow, *of_work, asked.manifest)
    )
    page = page_of(_LIST, rows, limit, event_row, "recorded_at")
    if page.next is not None:
        return page
    reached = await connection.fetchrow(queries["reached"], *where, LOOKED_THROUGH)
    return searched(page, _LIST, reached, "recorded_at")


async def begin_to_follow(connection: Connection, *, now: datetime) -> Numbers:
    """Where news begins: behind the newest event that there is."""
    since = now - timedelta(hours=_NEWS_HOURS)
    return Numbers(await connection.fetchval(queries["last_number"], since))


async def news(
    connection: Connection,
    numbers: Numbers,
    asked: EventFilter,
    *,
    now: datetime,
    elapsed: float,
) -> list[EventRow]:
    """What was written down since the last time, the oldest first.

    `elapsed` is any clock that only goes forward: it tells when a number that does not come is
    given up.
    """
    new = await new_numbers(connection, numbers, now=now, elapsed=elapsed)
    return await read_these(connection, new, asked, now=now)


async def new_numbers(
    connection: Connection, numbers: Numbers, *, now: datetime, elapsed: float
) -> list[int]:
    """The numbers of what was written down since the last time, whatever it is."""
    since = now - timedelta(hours=_NEWS_HOURS)
    rows = await connection.fetch(queries["numbers"], numbers.settled, _NEWS_AT_ONCE, since)
    return numbers.news((row["id"] for row in rows), elapsed)


async def read_these(
    connection: Connection, new: Sequence[int], asked: EventFilter, *, now: datetime
) -> list[EventRow]:
    """Those of some events that are asked for, the oldest first."""
    if not new:
        return []
    rows = await connection.fetch(
        queries["these"],
        new,
        now - timedelta(hours=_NEWS_HOURS),
        *(asked.patterns, asked.work, asked.run, asked.job, asked.group, asked.accepted),
        asked.manifest,
    )
    return [event_row(row) for row in rows]


def event_row(row: Any) -> EventRow:
    """An event out of its row."""
    return EventRow(
        number=row["id"],
        id=row["event_id"],
        work=row["work_id"],
        run=row["run_id"],
        lease=row["lease_id"],
        manifest=row.get("manifest"),
        job=row.get("job"),
        **{
            name: row[name]
            for name in (
                *("type", "subject", "source", "occurred_at", "recorded_at", "accepted"),
                *("refusal", "data"),
            )
        },
    )
