"""Measure the cost of the gate on an embedded PostgreSQL in half a minute.

    ./justw bench capacity

Prints one JSON document: how much work is admitted a second when much waits, what a pass for
one run takes, and what one takes that finds 100,000 waiting behind a full group, an unserved
job or a busy key. Rates move with the machine; the last ones must look like the second.
"""

import statistics
from typing import Any

from headway_clock import monotonic
from headway_dispatcher.gate.gate import Gate
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.wakeups import Wakeups
from headway_postgres_kit import Database

from benchmarks.database import empty_database, print_figures

MANY = 20_000
PASSES = 200
BACKLOG = 100_000

_QUEUE = """
INSERT INTO dispatcher.work_queue
    (id, round, slot, group_name, job, cause, queued_at, priority, rank, not_before, terms,
     state, wait_reason, received_at)
SELECT gen_random_uuid(), 1, 0, $2, $3, 'bench', now(), 0, now() - make_interval(secs => $4), now(), '{}',
       'queued', 'awaiting_gate', now()
FROM generate_series(1, $1::integer)
"""
_KEYED = """
UPDATE dispatcher.work_queue SET concurrency_key = 'busy', hold_reason = 'key'
WHERE group_name = 'keyed'
"""
_GROUPS = """
INSERT INTO dispatcher.group_limit (name, max_active)
VALUES ('wide', NULL), ('full', 0), ('unserved', NULL), ('keyed', NULL)
"""
_END_RUNS = """
UPDATE dispatcher.work_queue SET state = 'settled', outcome = 'completed', settled_at = now()
WHERE state = 'dispatched'
"""
_WORKER = """
INSERT INTO dispatcher.worker
    (name, nonce, host, sdk, sdk_version, jobs, slots, draining, first_heard_at, last_heard_at)
VALUES ('w', 'n', '', '', '', ARRAY['job'], 1000000, false, now(), now() + interval '1 hour')
"""


async def bench(database: Database) -> dict[str, Any]:
    """Fill and empty a queue."""
    settings = DispatcherSettings(database_url="", nats_url="", max_active=1_000_000)
    gate = Gate(database, settings, Wakeups())
    figures: dict[str, Any] = {}
    async with database.acquire() as connection:
        await connection.execute(_GROUPS)
        await connection.execute(_WORKER)
        await connection.execute(_QUEUE, MANY, "wide", "job", 0.0)
        await connection.execute("ANALYZE")
        figures["admitted_a_second"] = round(MANY / await _drain(gate, connection))
        await _forget(connection)
        figures["one_run_ms"] = await _one_by_one(gate, connection)
        for group, job in (("full", "job"), ("unserved", "nobody"), ("keyed", "job")):
            await _forget(connection)
            await connection.execute(_QUEUE, BACKLOG, group, job, 3600.0)
            if group == "keyed":
                await connection.execute(_KEYED)
            await connection.execute("VACUUM ANALYZE dispatcher.work_queue")
            figures[f"one_run_behind_{BACKLOG}_{group}_ms"] = await _one_by_one(gate, connection)
    return figures


async def _forget(connection: Any) -> None:
    await connection.execute(
        "TRUNCATE dispatcher.work_queue, dispatcher.metadata, dispatcher.lease,"
        " dispatcher.history, dispatcher.outbox, dispatcher.dead_letter CASCADE"
    )
    await connection.execute("VACUUM ANALYZE")


async def _drain(gate: Gate, connection: Any) -> float:
    """How long the passes take that empty the queue; runs end between them."""
    spent = 0.0
    while True:
        began = monotonic()
        result = await gate.run_once()
        spent += monotonic() - began
        if not result.admitted:
            return spent
        await connection.execute(_END_RUNS)


async def _one_by_one(gate: Gate, connection: Any) -> dict[str, float]:
    """Passes that admit one run each, the run ended after each."""
    spent = []
    for _ in range(PASSES):
        await connection.execute(_QUEUE, 1, "wide", "job", 0.0)
        began = monotonic()
        result = await gate.run_once()
        spent.append((monotonic() - began) * 1000)
        if result.admitted != 1:
            raise AssertionError(f"a pass that was to admit one: {result}")
        await connection.execute(_END_RUNS)
    return {
        "median": round(statistics.median(spent), 2),
        "p95": round(statistics.quantiles(spent, n=20)[-1], 2),
    }


async def run() -> dict[str, Any]:
    """Run it on a server of its own."""
    async with empty_database() as (database, _):
        return await bench(database)


def main() -> None:
    """Print the figures."""
    print_figures(run())
