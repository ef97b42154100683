"""The figures of `up` for its report at the end."""

from datetime import datetime
from typing import Any

from headway_postgres_kit import Database, Queries

from headway_cli.terminal.output import counted

queries = Queries("headway_cli", "sql/summary.sql")


async def read_value(database: Database, query: str, *arguments: Any) -> Any:
    """Read one value."""
    async with database.acquire() as connection:
        return await connection.fetchval(query, *arguments)


async def read_report(
    database: Database, since: datetime, running_since: datetime
) -> dict[str, Any]:
    """Read the figures of `--json`; start delays count since all services ran."""
    async with database.acquire() as connection:
        [counts] = await connection.fetch(queries["report"], since)
        [lateness] = await connection.fetch(queries["lateness"], running_since)
    return {
        **counts,
        "lateness_ms": {
            name: None if value is None else round(float(value), 1)
            for name, value in lateness.items()
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
