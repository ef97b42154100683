"""Tables full of what a month of running leaves behind, written by the server itself."""

from datetime import datetime
from pathlib import Path

from headway_postgres_kit import Database
from headway_postgres_kit.sql import parse

_QUERIES = parse((Path(__file__).parent / "filled.sql").read_text())

MANIFESTS, GROUPS = 200, 20


async def fill(
    database: Database,
    runs: int,
    *,
    now: datetime,
    letters: int = 5000,
    queued: int = 5000,
    analyzed: bool = True,
    stale: bool = False,
) -> None:
    """So many runs over thirty days of 200 manifests in 20 groups, one in a hundred failed.

    With `stale`, the statistics are those of a time when nothing waited or ran.
    """
    steps = (
        ("manifests", MANIFESTS, GROUPS, now),
        ("works", runs, MANIFESTS, GROUPS, now),
        ("leases", runs, now),
        ("runs", runs, MANIFESTS, GROUPS, now),
        ("lines",),
        ("letters", letters),
        ("ledger", runs, MANIFESTS, now),
        ("days", now),
        ("history", runs, now),
        ("audit", min(runs, 20_000), now),
        ("queue", queued, GROUPS, now),
        ("live", 100, GROUPS, now),
    )
    async with database.acquire() as connection:
        await connection.execute("SET statement_timeout = 0")
        for name, *arguments in steps:
            if stale and name == "queue":
                await connection.execute("VACUUM ANALYZE", timeout=600)
            await connection.execute(_QUERIES[name], *arguments, timeout=600)
        if analyzed and not stale:
            await connection.execute("VACUUM ANALYZE", timeout=600)
        await connection.execute("RESET statement_timeout")
