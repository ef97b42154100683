"""The ledger of one manifest: fired and skipped due times by entry and by day; and durations."""

from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.lists import Listing, Page, read_row

queries = Queries("headway_console.reading", "sql/occurrences.sql")

# A month with a fire each minute; with more, the latest are counted.
COUNTED = 50_000
_STRETCHES = 500
_OCCURRENCES = Listing("occurrences", "first_due_at", "cause", str)


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


class DayCount(Struct, frozen=True, kw_only=True):
    """Fires of a day with the same result, or a part of a stretch, whose `fires` is `None`."""

    day: date
    state: str
    reason: str
    fires: int | None


class Stretch(Struct, frozen=True, kw_only=True):
    """Due times that were skipped together."""

    first_due_at: datetime
    last_due_at: datetime
    state: str
    reason: str


class Past(Struct, frozen=True, kw_only=True):
    """The results of a span; not `in_full` if it had more fires than are counted."""

    days: list[DayCount]
    stretches: list[Stretch]
    in_full: bool


class BucketCount(Struct, frozen=True, kw_only=True):
    """Fires with the same result in a short time, which begins at `at`."""

    at: datetime
    state: str
    fires: int


class Buckets(Struct, frozen=True, kw_only=True):
    """The results of a day; not `in_full` if it had more fires than are counted."""

    counts: list[BucketCount]
    stretches: list[Stretch]
    fires: int
    in_full: bool


class RunFigure(Struct, frozen=True, kw_only=True):
    """One run that ended."""

    run: UUID
    state: str
    attempt: int
    created_at: datetime
    started_at: datetime | None
    took_seconds: float | None


async def read_span(
    connection: Connection,
    manifest: UUID,
    *,
    since: datetime,
    until: datetime,
    limit: int = 5000,
    troubled: bool = False,
) -> tuple[list[Occurrence], bool]:
    """Return decisions about a manifest, the oldest first, and whether there are more.

    With `troubled`, those of which the work completed or has not ended are left out.
    """
    rows = await connection.fetch(queries["between"], manifest, since, until, limit + 1, troubled)
    return [_occurrence(row) for row in rows[:limit]], len(rows) > limit


async def page_of_occurrences(
    connection: Connection, manifest: UUID, *, cursor: str | None = None, limit: int = 50
) -> Page[Occurrence]:
    """List the decisions about a manifest, the latest first."""
    place = _OCCURRENCES.time_and_id(cursor)
    rows = await connection.fetch(queries["last"], manifest, *place, limit + 1)
    return _OCCURRENCES.page(rows, limit, _occurrence)


def _occurrence(row: Any) -> Occurrence:
    state = row["decision"] if row["decision"] != "queued" else row["outcome"] or "under_way"
    return read_row(Occurrence, row, state=state)


async def read_past(
    connection: Connection, manifest: UUID, *, since: datetime, until: datetime, zone: str
) -> Past:
    """Count the decisions about a manifest by day, in its zone."""
    days = await connection.fetch(queries["days"], manifest, since, until, zone, COUNTED)
    stretches = await connection.fetch(queries["stretches"], manifest, since, until, _STRETCHES)
    return Past(
        days=[DayCount(**dict(row)) for row in days],
        stretches=[Stretch(**dict(row)) for row in stretches],
        in_full=sum(row["fires"] for row in days) < COUNTED,
    )


async def read_buckets(
    connection: Connection, manifest: UUID, *, since: datetime, until: datetime, width: timedelta
) -> Buckets:
    """Count the decisions about a manifest by short times."""
    rows = await connection.fetch(queries["buckets"], manifest, since, until, width, COUNTED)
    stretches = await connection.fetch(queries["stretches"], manifest, since, until, _STRETCHES)
    fires = sum(row["fires"] for row in rows)
    return Buckets(
        counts=[BucketCount(**dict(row)) for row in rows],
        stretches=[Stretch(**dict(row)) for row in stretches],
        fires=fires,
        in_full=fires < COUNTED,
    )


async def latest_figures(
    connection: Connection, manifest: UUID, *, limit: int = 500
) -> list[RunFigure]:
    """Return the latest runs of a manifest that ended, the newest first, for plots."""
    rows = await connection.fetch(queries["durations"], manifest, limit)
    return [read_row(RunFigure, row) for row in rows]
