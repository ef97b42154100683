"""The figures of `up`: the current state, and the report at the end."""

from datetime import datetime
from typing import Any

from headway_postgres_kit import Database, Queries
from msgspec import Struct

from headway_cli.terminal.output import counted

queries = Queries("headway_cli", "sql/summary.sql")


class Progress(Struct, frozen=True, kw_only=True):
    """Counts since a time, and of current work."""

    manifests: int
    blocked: int
    occurrences: int
    skipped: int
    waiting: int
    running: int
    completed: int
    failed: int
    dead_letters: int
    # Runs whose body may have started more than once.
    in_doubt: int


class LatestRun(Struct, frozen=True, kw_only=True):
    """A recent run."""

    manifest: str | None
    state: str
    attempt: int
    started_at: datetime | None
    finished_at: datetime | None
    message: str | None


class Summary(Struct, frozen=True, kw_only=True):
    """The current state."""

    now: datetime
    progress: Progress
    next_due: list[tuple[str, datetime]]
    latest: list[LatestRun]


async def read_now(database: Database) -> datetime:
    """Read the database's time."""
    now: datetime = await _read(database, queries["now"])
    return now


async def read_summary(database: Database, since: datetime) -> Summary:
    """Read the state since a time."""
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


async def count_under_way(database: Database, since: datetime) -> int:
    """Count work that is with workers, or on its way to them, since a time."""
    count: int = await _read(database, queries["under_way"], since)
    return count


async def count_unsettled(database: Database, since: datetime) -> int:
    """Count work that is under way, or will be without a new decision."""
    to_come: int = await _read(database, queries["to_come"], await read_now(database))
    return to_come + await count_under_way(database, since)


async def count_workers(database: Database, since: datetime) -> int:
    """Count workers that have sent a heartbeat since a time."""
    count: int = await _read(database, queries["workers_heard"], since)
    return count


async def _read(database: Database, query: str, *arguments: Any) -> Any:
    async with database.acquire() as connection:
        return await connection.fetchval(query, *arguments)


async def read_report(
    database: Database, since: datetime, running_since: datetime
) -> dict[str, Any]:
    """Read the figures of `--json`; start delays count since all services ran."""
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


def report_text(report: dict[str, Any]) -> str:
    """Describe the report in one line."""
    parts = [
        f"{report['occurrences']} fired",
        f"{counted(report['runs_completed'], 'run')} completed",
        f"{report['runs_failed']} failed",
        counted(report["dead_letters"], "dead letter"),
    ]
    if report["runs_in_doubt"]:
        parts.append(f"{counted(report['runs_in_doubt'], 'run')} possibly started twice")
    delay = report["lateness_ms"]["p99"]
    if delay is not None:
        parts.append(f"p99 start delay: {delay:g} ms")
    return ", ".join(parts)


def summary_text(summary: Summary) -> str:
    """Describe the state in one line."""
    progress = summary.progress
    return (
        f"{counted(progress.manifests, 'manifest')}, {progress.occurrences} fired, "
        f"{progress.running} running, {progress.waiting} waiting, "
        f"{progress.completed} completed, {progress.failed} failed"
    )
