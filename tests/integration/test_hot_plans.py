"""Query plans of the statements that every lease passes: none reads what has ended.

With statistics, with plans that were made before there were any, and with those of a time when
nothing waited or ran.
"""

import json
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from headway_clock import utc_now
from headway_dispatcher.store import gates, heals, leases, progress_queries, works
from support.filled import fill
from support.plans import outline, rows_read, scans_of

pytestmark = [pytest.mark.breaks_tables("fills tables by hand"), pytest.mark.thorough]

RUNS = 10_000
# Rows that a statement may read for its one lease and one work.
FEW = 80
# Rows of all that is live: a hundred leases here.
LIVE = 1_500
GROWING = ("metadata", "work_queue", "lease", "history")

NOW = utc_now()
STEP = timedelta(minutes=32)
DISPATCHED = """
    SELECT array_agg(id ORDER BY id), array_agg(run_id ORDER BY id) FROM dispatcher.work_queue
    WHERE state = 'dispatched'
"""


def live(what: str, number: int = 7) -> str:
    """Return the expression of an id of the fixture."""
    return f"md5('{what} {number}')::uuid"


def statements(lease: UUID, work: UUID, run: UUID) -> dict[str, tuple[str, list[Any], int]]:
    """Return each hot statement, with parameters for one live run, and the rows it may read."""
    written = [
        *([run], ["completed"], ["w"], ["h"], [NOW], [NOW], [None], ["1"], [None], [None], NOW),
        *([lease], ["worker-1"], ["n"], [3], ["{}"], [True], [None], [NOW], [NOW], ["h"]),
        *([work], [lease], [1]),
    ]
    ended = [
        *([work], NOW, NOW, [run], [None], ["w"], ["h"], [NOW], [NOW], [NOW], [NOW], [None]),
    ]
    made = ([uuid4()], ["t"], ["job-00"], NOW, NOW, [work], [uuid4()], [lease])
    return {
        "lock leases": (leases["lock"], [[lease], ["event"], [lease]], FEW),
        "runs of leases": (leases["runs_of"], [[lease]], FEW),
        "write runs": (leases["write"], written, FEW),
        "settle completed": (works["settle_completed"], ended, FEW),
        "lock works": (works["lock"], [[work]], FEW),
        "dispatch": (gates["dispatch"], [*made], FEW),
        "orders": (heals["orders"], [[lease]], FEW),
        "reporting runs": (progress_queries["reporting_runs"], [[run], [lease]], FEW),
        "situation": (gates["situation"], [timedelta(seconds=60)], LIVE),
        "silent leases": (
            leases["silent"],
            [NOW - timedelta(days=99), NOW - timedelta(days=99), NOW - timedelta(days=99), 100, []],
            LIVE,
        ),
        "unclaimed orders": (heals["unclaimed"], [NOW, NOW, 100], LIVE),
        "cancelled runs": (works["cancelling"], [100], FEW),
    }


def statements_for_many(
    works_: list[UUID], runs: list[UUID]
) -> dict[str, tuple[str, list[Any], int]]:
    """Return the statements that pass many works at once, and the rows that they may read."""
    columns = [[None] * len(works_)] * 8
    jobs = (["job-00"], [500], [500], [250])
    return {
        "settle many": (works["settle_completed"], [works_, NOW, NOW, runs, *columns], LIVE),
        "candidates": (gates["candidates"], [[], [], [], [], *jobs, NOW, 20, STEP], LIVE),
        "look": (gates["look"], [], FEW),
    }


@pytest.mark.parametrize("statistics", ["none", "stale", "fresh"])
async def test_a_hot_statement_reads_no_ended_rows(database, statistics):
    await fill(
        database, RUNS, now=NOW, letters=20, queued=500,
        analyzed=statistics == "fresh", stale=statistics == "stale",
    )  # fmt: skip
    async with database.acquire() as connection:
        # As for a statement that was prepared long ago.
        await connection.execute("SET plan_cache_mode = force_generic_plan")
        try:
            found = await connection.fetchrow(
                f"SELECT {live('live lease')}, {live('live')}, {live('live run')}"
            )
            [many] = await connection.fetch(DISPATCHED)
            hot = statements(*found) | statements_for_many(*many)
            for name, (query, arguments, most) in hot.items():
                plan = await explained(connection, query, arguments)
                assert rows_read(plan) <= most, (name, outline(plan))
                scanned = {table for table in GROWING if "Seq Scan" in scans_of(plan, table)}
                assert not scanned, (name, outline(plan))
        finally:
            await connection.execute("RESET plan_cache_mode")


async def explained(connection: Any, query: str, arguments: list[Any]) -> dict[str, Any]:
    """Run a statement, roll it back, and return its plan."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) {query}", *arguments)
    finally:
        await transaction.rollback()
    return json.loads(text)[0]["Plan"]
