"""What `up` knows of the work: how it stands now, and the figures at the end."""

from datetime import datetime
from typing import Any

from headway_postgres_kit import Database, Queries
from msgspec import Struct

queries = Queries("headway_cli", "sql/summary.sql")


class Progress(Struct, frozen=True, kw_only=True):
    """Counts since a moment, and of what goes on."""

    manifests: int
    blocked: int
    occurrences: int
    skipped: int
    waiting: int
    running: int
    completed: int
    failed: int
    dead_letters: int
    # Runs whose body may have begun more than once.
    in_doubt: int


class LatestRun(Struct, frozen=True, kw_only=True):
    """A run that was touched lately."""

    manifest: str | None
    state: str
    attempt: int
    started_at: datetime | None
    finished_at: datetime | None
    message: str | None


class Summary(Struct, frozen=True, kw_only=True):
    """How things stand."""

    now: datetime
    progress: Progress
    next_due: list[tuple[str, datetime]]
    latest: list[LatestRun]


async def read_now(database: Database) -> datetime:
    """The database's time."""
    async with database.acquire() as connection:
        now: datetime = await connection.fetchval(queries["now"])
        return now


async def read_summary(database: Database, since: datetime) -> Summary:
    """How things stand since a moment."""
    async with database.acquire() as connection:
        progress = await connection.fetchrow(queries["progress"], since)
        next_due = await connection.fetch(queries["next_due"], 5)
        latest = await connection.fetch(queries["latest"], since, 8)
        return Summary(
            now=await connection.fetchval(queries["now"]),
            progress=Progress(**dict(progress or {})),
            next_due=[(row["external_id"], row["next_due_at"]) for row in next_due],
            latest=[LatestRun(**dict(row)) for row in latest],
        )


async def read_under_way(database: Database, since: datetime) -> int:
    """How much is with workers, or on its way to them, since a moment."""
    async with database.acquire() as connection:
        count: int = await connection.fetchval(queries["under_way"], since)
        return count


async def read_unsettled(database: Database, since: datetime) -> int:
    """How much is under way or could be, with nothing new decided."""
    async with database.acquire() as connection:
        now = await connection.fetchval(queries["now"])
        to_come: int = await connection.fetchval(queries["to_come"], now)
    return to_come + await read_under_way(database, since)


async def read_workers(database: Database, since: datetime) -> int:
    """How many workers were heard of since a moment."""
    async with database.acquire() as connection:
        count: int = await connection.fetchval(queries["workers_heard"], since)
        return count


async def read_report(
    database: Database, since: datetime, running_since: datetime
) -> dict[str, Any]:
    """The figures that `--json` prints; what was due before all ran could only be late."""
    async with database.acquire() as connection:
        progress = await connection.fetchrow(queries["progress"], since)
        lateness = await connection.fetchrow(queries["lateness"], running_since)
    assert progress is not None  # noqa: S101 - a select of aggregates has one row
    assert lateness is not None  # noqa: S101
    return {
        "occurrences": progress["occurrences"],
        "runs_completed": progress["completed"],
        "runs_failed": progress["failed"],
        "dead_letters": progress["dead_letters"],
        "runs_in_doubt": progress["in_doubt"],
        "lateness_ms": {
            name: None if lateness[name] is None else round(float(lateness[name]), 1)
            for name in ("p50", "p99")
        },
    }


def in_words(report: dict[str, Any]) -> str:
    """The figures for people."""
    late = report["lateness_ms"]["p99"]
    return (
        f"{report['occurrences']} fired, {counted(report['runs_completed'], 'run')} completed, "
        f"{report['runs_failed']} failed, {counted(report['dead_letters'], 'dead letter')}"
        + (
            f", {counted(report['runs_in_doubt'], 'run')} that may have begun twice"
            if report["runs_in_doubt"]
            else ""
        )
        + (f"; 99 of 100 began within {late:g} ms of their time" if late is not None else "")
    )


def line(summary: Summary) -> str:
    """How things stand in one line, where there is no terminal to draw on."""
    progress = summary.progress
    return (
        f"{counted(progress.manifests, 'manifest')}, {progress.occurrences} fired, "
        f"{progress.running} running, {progress.waiting} waiting, "
        f"{progress.completed} completed, {progress.failed} failed"
    )


def counted(number: int, thing: str) -> str:
    """A number with its noun."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
