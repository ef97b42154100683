"""Jobs whose runs fail, by the share of runs that failed."""

from datetime import datetime
from uuid import UUID

from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.lists import Page, read_row

queries = Queries("headway_console.reading", "sql/failing_jobs.sql")


class FailingJob(Struct, frozen=True, kw_only=True):
    """A job with its runs that completed or failed in a time, and its latest failure of any time.

    `rate` is the failed share of these runs; `None` if there are none, but open dead letters.
    """

    job: str
    runs: int
    failed: int
    rate: float | None
    dead_letters: int
    last_run: UUID | None
    last_at: datetime | None
    failure_kind: str | None
    failure_message: str | None


async def page_of_failing_jobs(
    connection: Connection, *, since: datetime, limit: int = 50
) -> Page[FailingJob]:
    """List jobs with failed runs since a time or open dead letters, the highest rate first."""
    rows = await connection.fetch(queries["failing"], since, limit)
    return Page(items=[read_row(FailingJob, row) for row in rows])
