"""Applications with their source, and the jobs that they declare, with figures of their runs."""

from collections.abc import Collection
from datetime import datetime
from functools import partial
from typing import Any, Literal

from headway_contract.fields import Name
from headway_contract.work import RetryPolicy
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.lists import Listing, Page, SearchText, like, read_row

queries = Queries("headway_console.reading", "sql/applications.sql")

_APPS = Listing("applications", None, "name")
_JOBS = Listing("jobs", None, "name")


class ApplicationRow(Struct, frozen=True, kw_only=True):
    """An application; its `source` is its code, or files that a person applied."""

    name: str
    source: Literal["code", "files"]
    generation: int
    declared_at: datetime
    declared_by: str
    manifests: int
    jobs: int


class JobRow(Struct, frozen=True, kw_only=True):
    """A job: its limits, their use, and the number of live workers.

    `touched` names the limits that an operator has set; `attempts` is the default of its work.
    Without a `batch`, the duration of runs decides how many share a lease. Since `retired_at` no
    application declares it.
    """

    name: str
    owner: str
    title: str
    description: str
    category: str
    input_schema: dict[str, Any] | None
    takes_input: bool
    max_active: int | None
    rate: Any
    batch: int | None
    manifests: int
    workers: int
    attempts: int
    touched: list[str] = []
    active: int = 0
    retired_at: datetime | None = None


class JobFigures(Struct, frozen=True, kw_only=True):
    """Results of the latest ended runs of a job, and percentiles of its completed ones."""

    ended: int
    failed: int
    p50: float | None
    p95: float | None
    since: datetime | None


async def page_of_applications(
    connection: Connection, *, cursor: str | None = None, limit: int = 100
) -> Page[ApplicationRow]:
    """List applications by name, with the source that declares each."""
    rows = await connection.fetch(queries["applications"], _APPS.last_name(cursor), limit + 1)
    return _APPS.page(rows, limit, partial(read_row, ApplicationRow))


async def page_of_jobs(
    connection: Connection,
    *,
    heard_since: datetime,
    text: SearchText | None = None,
    name: Name | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[JobRow]:
    """List declared jobs with the schema of their input; workers heard since then are alive."""
    rows = await connection.fetch(
        queries["jobs"], _JOBS.last_name(cursor), like(text), heard_since, limit + 1, name
    )
    return _JOBS.page(rows, limit, _job_row)


async def read_job_figures(
    connection: Connection, jobs: Collection[str], *, among: int
) -> dict[str, JobFigures]:
    """Return the figures of jobs over the latest runs of each."""
    rows = await connection.fetch(queries["figures"], list(jobs), among)
    return {row["job"]: read_row(JobFigures, row) for row in rows}


async def list_jobs_of_group(
    connection: Connection, group: str, *, limit: int = 50
) -> dict[str, int]:
    """Return the jobs of a group by name, with the number of their manifests in it."""
    rows = await connection.fetch(queries["jobs_of_group"], group, limit)
    return {row["job"]: row["manifests"] for row in rows}


def _job_row(row: Any) -> JobRow:
    """Read a job; terms that equal the default are not stored."""
    return read_row(JobRow, row, attempts=row["attempts"] or RetryPolicy().attempts)
