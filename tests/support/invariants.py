"""The invariants, asked of the database after whatever a test did to the services.

Those that are a question to the tables stand in `invariants.sql`, one query for each way to
break them; a query that finds anything is a failure. I3 is watched at every commit
(`watch_caps.sql`), I7 is `verify`, I10 is a property of the fold (`tests/unit/test_history.py`),
and I9 is about a broker that the database cannot see (the tests of outages).
"""

from pathlib import Path

from headway_dispatcher.history.verify import verify
from headway_postgres_kit import Database
from headway_postgres_kit.sql import parse

_TABLES = (
    *("dispatcher.work_queue", "dispatcher.lease", "dispatcher.metadata", "dispatcher.inbox"),
    *("dispatcher.history", "dispatcher.dead_letter", "dispatcher.outbox", "dispatcher.rejected"),
    *("scheduler.manifest", "scheduler.occurrence", "scheduler.work", "scheduler.enqueued"),
    *("scheduler.outbox", "scheduler.rejected"),
)
_IS_UNUSED = f"SELECT NOT ({' OR '.join(f'EXISTS (SELECT FROM {table})' for table in _TABLES)})"
VIOLATIONS = parse((Path(__file__).parent / "invariants.sql").read_text())


async def broken_invariants(database: Database) -> list[str]:
    """Return a line for each invariant that does not hold."""
    broken = []
    async with database.acquire() as connection:
        # Many tests write nothing, and planning all these queries takes a while.
        if await connection.fetchval(_IS_UNUSED):
            return []
        for query in VIOLATIONS.values():
            rows = await connection.fetch(query)
            if rows:
                broken.append(f"{query.splitlines()[0].lstrip('- ')} {rows[:5]}")
    verified = await verify(database)
    if verified.differing:
        broken.append(f"I7: the tables are not the fold of history: {verified.differences[:5]}")
    return broken


async def check_invariants(database: Database, *, rejected: int = 0) -> None:
    """Raise if any invariant is broken, or not so many messages were rejected."""
    broken = await broken_invariants(database)
    async with database.acquire() as connection:
        put_aside = await connection.fetch("SELECT reason FROM dispatcher.rejected")
    assert broken == []
    assert len(put_aside) == rejected, f"I8: messages were rejected: {put_aside}"
