"""Measure the cost of scheduling on embedded servers in one run.

    ./justw bench scheduling                  # about two minutes; a million manifests
    ./justw bench scheduling --sizes 10k,100k

Prints one JSON document. Rates move with the machine; the ratios are what matters: a tick
must cost what is due, not what exists.
"""

import argparse
import operator
import statistics
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from headway import App, every
from headway_clock import monotonic
from headway_postgres_kit import Database
from headway_relay import Handover
from headway_scheduler.declare.startup import apply
from headway_scheduler.fire.tick import Tick

from benchmarks.database import empty_database, print_figures, read_sizes

NOW = datetime(2027, 3, 1, 12, tzinfo=UTC)
DUE = 200
TICKS = 15
GROUPS = 50


class FixedClock:
    """Shows one time until it is set to another."""

    at = NOW

    async def now(self, connection: Any) -> datetime:
        return self.at


def make_app(manifests: int, groups: int = 1) -> App:
    app = App("bench")
    app.job("job")(lambda ctx, number: None)
    for number in range(manifests):
        group = f"group-{number % groups}"
        app.schedule(f"m-{number}", job="job", when=every(minutes=5), input=number, group=group)
    return app


# Copies of one manifest: a tenth of them disabled, a tenth blocked, a tenth outstanding, all of
# those past due; the rest due later.
_FILL = """
INSERT INTO scheduler.manifest
    (id, external_id, owner, job, group_name, input, timing, terms, enabled, disabled_by, dead_letters, definition_hash,
     next_due_at, wake_at, declared_at)
SELECT gen_random_uuid(), 'filler-' || number, owner, job, 'group-' || number % $3, input, timing,
       terms, number % 10 <> 0,
       CASE WHEN number % 10 = 0 THEN 'operator' END,
       CASE WHEN number % 10 = 1 THEN ARRAY[gen_random_uuid()] ELSE '{}' END, definition_hash,
       CASE WHEN number % 10 < 3 THEN $1::timestamptz - interval '1 day'
            ELSE $1 + interval '1 hour' + number % 3600 * interval '1 second' END,
       CASE WHEN number % 10 >= 3
            THEN $1 + interval '1 hour' + number % 3600 * interval '1 second' END, $1
FROM scheduler.manifest, generate_series(1, $2::integer) AS number
WHERE external_id = 'm-0'
"""
_OUTSTAND = """
INSERT INTO scheduler.work (id, manifest_id, cause, queued_at)
SELECT gen_random_uuid(), id, 'due:earlier', $1 FROM scheduler.manifest
WHERE enabled AND blocked_by IS NULL AND wake_at IS NULL
  AND NOT EXISTS (SELECT FROM scheduler.work WHERE work.manifest_id = manifest.id)
"""
_MAKE_DUE = """
UPDATE scheduler.manifest SET next_due_at = $1, wake_at = $1 WHERE external_id LIKE 'm-%'
"""


async def measure_ticks(sizes: list[int]) -> dict[str, Any]:
    """The cost of a tick with 200 due manifests among so many that are not.

    The sizes take turns, each on a server of its own, so that a busy machine slows all of them.
    """
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    async with AsyncExitStack() as stack:
        databases = {size: await _filled_database(stack, size) for size in sizes}
        ticks = {
            size: Tick(database, holder="bench", max_entries=DUE, relay=Handover())
            for size, database in databases.items()
        }
        for _ in range(TICKS):
            for size, tick in ticks.items():
                costs[size].append(await _tick_cost(databases[size], tick))
    ratios = map(operator.truediv, costs[sizes[-1]], costs[sizes[0]])
    return {
        "due": DUE,
        "tick_ms": {str(size): round(statistics.median(spent), 2) for size, spent in costs.items()},
        "ratio_largest_to_smallest": round(statistics.median(ratios), 2),
    }


async def _filled_database(stack: AsyncExitStack, size: int) -> Database:
    database, _ = await stack.enter_async_context(empty_database())
    database.clock = FixedClock()
    await apply(database, make_app(DUE, GROUPS).definitions(), policy="keep")
    async with database.acquire() as connection:
        await connection.execute(_FILL, NOW, size, GROUPS)
        await connection.execute(_OUTSTAND, NOW)
        await connection.execute("VACUUM ANALYZE scheduler.manifest")
        await connection.execute("VACUUM ANALYZE scheduler.work")
        await connection.execute("CHECKPOINT")
    return database


async def _tick_cost(database: Database, tick: Tick) -> float:
    """The cost of a tick that fires 200, in milliseconds."""
    database.clock.at += timedelta(seconds=60)
    async with database.acquire() as connection:
        await connection.execute(
            "DELETE FROM scheduler.work WHERE manifest_id IN"
            " (SELECT id FROM scheduler.manifest WHERE external_id LIKE 'm-%')"
        )
        await connection.execute("DELETE FROM scheduler.outbox")
        await connection.execute(_MAKE_DUE, database.clock.at)
    began = monotonic()
    result = await tick.run_once()
    if result.fired != DUE:
        raise AssertionError(f"the tick fired {result.fired}, not {DUE}")
    return (monotonic() - began) * 1000


async def measure_seeding(database: Database, count: int) -> dict[str, Any]:
    """How long it takes to declare manifests that are new, and again when nothing changed."""
    database.clock = FixedClock()
    definitions = make_app(count).definitions()
    began = monotonic()
    await apply(database, definitions, policy="delete")
    seeded = monotonic()
    await apply(database, definitions, policy="delete")
    return {
        "manifests": count,
        "seconds": round(seeded - began, 2),
        "unchanged_seconds": round(monotonic() - seeded, 2),
    }


async def run(sizes: list[int]) -> dict[str, Any]:
    """All figures, each on a server of its own."""
    ticks = await measure_ticks(sizes)
    async with empty_database() as (database, _):
        return {"tick": ticks, "seeding": await measure_seeding(database, 10_000)}


def main() -> None:
    """Read the sizes and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    about = "how many manifests there are"
    parser.add_argument("--sizes", type=read_sizes, default="10k,100k,1m", help=about)
    print_figures(run(parser.parse_args().sizes))
