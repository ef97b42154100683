"""Measure the cost of scheduling on embedded servers in one run.

    ./justw bench scheduling                  # about two minutes; a million manifests
    ./justw bench scheduling --sizes 10k,100k

Prints one JSON document. Rates move with the machine; the ratios are what matters: a tick
must cost what is due, not what exists.
"""

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvloop
from headway import App, every
from headway_cli.serve.services import apply_migrations
from headway_clock import monotonic
from headway_dispatcher.provisioning import provision
from headway_embedded import NatsServer, PostgresServer
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_relay import Handover, Relay
from headway_scheduler.declare.startup import apply
from headway_scheduler.fire.tick import Tick
from headway_scheduler.store import OUTBOX

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
FROM scheduler.manifest, generate_series($4::integer, $2::integer) AS number
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


async def measure_ticks(database: Database, sizes: list[int]) -> dict[str, Any]:
    """The cost of a tick with 200 due manifests among so many that are not."""
    clock = database.clock = FixedClock()
    await apply(database, make_app(DUE, GROUPS).definitions(), policy="keep")
    costs: dict[str, float] = {}
    filled = 0
    for size in sizes:
        async with database.acquire() as connection:
            await connection.execute(_FILL, NOW, size, GROUPS, filled + 1)
            await connection.execute(_OUTSTAND, NOW)
            await connection.execute("VACUUM ANALYZE scheduler.manifest")
            await connection.execute("VACUUM ANALYZE scheduler.work")
        filled = size
        costs[str(size)] = round(await _tick_cost(database, clock), 2)
    smallest, largest = str(sizes[0]), str(sizes[-1])
    return {
        "due": DUE,
        "tick_ms": costs,
        "ratio_largest_to_smallest": round(costs[largest] / costs[smallest], 2),
    }


async def _tick_cost(database: Database, clock: FixedClock) -> float:
    """The median cost of a tick that fires 200, in milliseconds."""
    tick = Tick(database, holder="bench", max_entries=DUE, relay=Handover())
    costs = []
    for _ in range(TICKS):
        clock.at += timedelta(seconds=60)
        async with database.acquire() as connection:
            await connection.execute(
                "DELETE FROM scheduler.work WHERE manifest_id IN"
                " (SELECT id FROM scheduler.manifest WHERE external_id LIKE 'm-%')"
            )
            await connection.execute("DELETE FROM scheduler.outbox")
            await connection.execute(_MAKE_DUE, clock.at)
        began = monotonic()
        result = await tick.run_once()
        costs.append((monotonic() - began) * 1000)
        if result.fired != DUE:
            raise AssertionError(f"the tick fired {result.fired}, not {DUE}")
    return statistics.median(costs)


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


async def measure_firing(
    database: Database, broker: Broker, count: int, *, entries: int
) -> dict[str, Any]:
    """All manifests fall due in the same second: decided, recorded, and out at the broker.

    `entries` is how many a cycle takes.
    """
    database.clock = FixedClock()
    await provision(broker, replicas=1, max_bytes=256 * 1024**2)
    async with database.acquire() as connection:
        await connection.execute("DELETE FROM scheduler.outbox")
        await connection.execute(_MAKE_DUE, NOW)
    mail = Handover()
    tick = Tick(database, holder="bench", max_entries=entries, relay=mail)
    relay = Relay(database, broker, OUTBOX, mail)
    began = monotonic()
    fired = 0

    async def decide() -> None:
        nonlocal fired
        while (result := await tick.run_once()).fired:
            fired += result.fired

    async def send() -> None:
        while fired < count or await _backlog(database):
            if await relay.run_once() is None:
                await mail.rest(0.05)

    await asyncio.gather(decide(), send())
    seconds = monotonic() - began
    if fired != count:
        raise AssertionError(f"{fired} of {count} fired")
    return {"work": count, "seconds": round(seconds, 2), "per_second": round(count / seconds)}


async def _backlog(database: Database) -> int:
    async with database.acquire() as connection:
        return await OUTBOX.backlog(connection)


async def run(sizes: list[int]) -> dict[str, Any]:
    """All figures, each on a database of its own."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        postgres, nats = PostgresServer(Path(folder) / "pg"), NatsServer(Path(folder) / "nats")
        await postgres.start()
        await nats.start()
        try:
            broker = await Broker.connect(nats.url, name="bench")
            found: dict[str, Any] = {}
            found["tick"] = await _on_a_database(postgres.url, measure_ticks, sizes)
            found["seeding"] = await _on_a_database(postgres.url, measure_seeding, 10_000)

            async def fire(database: Database, entries: int) -> dict[str, Any]:
                await measure_seeding(database, 10_000)
                return await measure_firing(database, broker, 10_000, entries=entries)

            for entries in (DUE, 2500):
                name = f"firing_in_cycles_of_{entries}"
                found[name] = await _on_a_database(postgres.url, fire, entries)
            await broker.close()
            return found
        finally:
            await nats.stop()
            await postgres.stop()


async def _on_a_database(url: str, measure: Any, *arguments: Any) -> Any:
    name = f"bench_{uuid4().hex[:8]}"
    admin = await Database.connect(url, name="bench")
    async with admin.acquire() as connection:
        await connection.execute(f"CREATE DATABASE {name}")
    await admin.close()
    database = await Database.connect(
        url.rpartition("/")[0] + f"/{name}", name="bench", answer_seconds=600
    )
    try:
        await apply_migrations(database)
        return await measure(database, *arguments)
    finally:
        await database.close()


def _size(text: str) -> int:
    return int(text.lower().replace("k", "000").replace("m", "000000"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="10k,100k,1m", help="how many manifests there are")
    chosen = parser.parse_args().sizes
    json.dump(uvloop.run(run([_size(part) for part in chosen.split(",")])), sys.stdout, indent=2)
    sys.stdout.write("\n")
