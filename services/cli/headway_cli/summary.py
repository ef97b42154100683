"""What `up` shows while it runs and prints at its end."""

from datetime import datetime
from typing import Any

from headway_postgres_kit import Database, Queries
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

queries = Queries("headway_cli", "sql/summary.sql")

_STATE_STYLES = {
    "completed": "green",
    "failed": "red",
    "in_progress": "cyan",
    "cancelled": "yellow",
}


class Summary(Struct, frozen=True, kw_only=True):
    """How things stand."""

    now: datetime
    progress: dict[str, int]
    next_due: list[tuple[str, datetime]]
    latest: list[dict[str, Any]]


async def read_now(database: Database) -> datetime:
    """The database's time."""
    async with database.acquire() as connection:
        now: datetime = await connection.fetchval(queries["now"])
        return now


async def read_summary(database: Database, since: datetime) -> Summary:
    """How things stand since a moment."""
    async with database.acquire() as connection:
        return Summary(
            now=await connection.fetchval(queries["now"]),
            progress=dict(await connection.fetchrow(queries["progress"], since) or {}),
            next_due=[
                (row["external_id"], row["next_due_at"])
                for row in await connection.fetch(queries["next_due"], 5)
            ],
            latest=[dict(row) for row in await connection.fetch(queries["latest"], since, 8)],
        )


async def read_unsettled(database: Database) -> int:
    """How much is under way or could be."""
    async with database.acquire() as connection:
        now = await connection.fetchval(queries["now"])
        count: int = await connection.fetchval(queries["unsettled"], now)
        return count


async def read_workers(database: Database) -> int:
    """How many workers were heard of lately."""
    async with database.acquire() as connection:
        count: int = await connection.fetchval(queries["live_workers"])
        return count


async def read_report(database: Database, since: datetime) -> dict[str, Any]:
    """The figures that `--json` prints."""
    async with database.acquire() as connection:
        progress = await connection.fetchrow(queries["progress"], since)
        lateness = await connection.fetchrow(queries["lateness"], since)
    assert progress is not None  # noqa: S101 - a select of aggregates has one row
    assert lateness is not None  # noqa: S101
    return {
        "occurrences": progress["occurrences"],
        "runs_completed": progress["completed"],
        "runs_failed": progress["failed"],
        "dead_letters": progress["dead_letters"],
        "lateness_ms": {
            name: None if lateness[name] is None else round(float(lateness[name]), 1)
            for name in ("p50", "p99")
        },
    }


def render(summary: Summary) -> RenderableType:
    """The live view in the terminal."""
    progress = summary.progress
    head = Text.assemble(
        (f"{progress['manifests']} manifests", "bold"),
        f"  {progress['occurrences']} fired  ",
        (f"{progress['running']} running", "cyan"),
        f"  {progress['waiting']} waiting  ",
        (f"{progress['completed']} completed", "green"),
        "  ",
        (f"{progress['failed']} failed", "red" if progress["failed"] else "dim"),
        f"  {progress['skipped']} skipped  ",
        (f"{progress['dead_letters']} dead letters", "red" if progress["dead_letters"] else "dim"),
    )
    due = Table(title="next due", title_justify="left", show_header=False, box=None)
    for external_id, next_due_at in summary.next_due:
        due.add_row(external_id, _in(next_due_at, summary.now), style="dim")
    runs = Table(title="latest runs", title_justify="left", show_header=False, box=None)
    for row in summary.latest:
        state = row["state"]
        runs.add_row(
            row["manifest"] or "",
            Text(state.replace("_", " "), style=_STATE_STYLES.get(state, "")),
            f"attempt {row['attempt']}",
            _duration(row),
            Text(row["message"] or "", style="dim", overflow="ellipsis"),
        )
    return Group(head, due, runs)


def line(summary: Summary) -> str:
    """The same in one line, where there is no terminal to draw on."""
    progress = summary.progress
    return ", ".join(
        f"{progress[key]} {label}"
        for key, label in (
            ("manifests", "manifests"),
            ("occurrences", "fired"),
            ("running", "running"),
            ("waiting", "waiting"),
            ("completed", "completed"),
            ("failed", "failed"),
        )
    )


def _in(moment: datetime, now: datetime) -> str:
    seconds = max(0, round((moment - now).total_seconds()))
    if seconds < 120:
        return f"in {seconds} s"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _duration(row: dict[str, Any]) -> str:
    if row["started_at"] is None or row["finished_at"] is None:
        return ""
    return f"{(row['finished_at'] - row['started_at']).total_seconds():.2f} s"
