"""Scenarios, from simple to complex; later ones build on earlier ones."""

import argparse
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from headway import once
from headway_cli.serve.running import PartEnded
from headway_clock import monotonic, utc_now

from benchmarks.database import print_figures, read_size
from benchmarks.measured_app import TRIGGERED
from benchmarks.servers import Bench, queries

Figures = dict[str, Any]
Scenario = Callable[[Bench, int], Awaitable[Figures]]

_ONE_BY_ONE = 500
_AT_ONCE = 1000


async def enqueue(bench: Bench, work: int) -> Figures:
    """Enqueue work by SQL, one by one and then 1,000 in a transaction, until all is queued."""
    figures: Figures = {"work": work}
    single = min(_ONE_BY_ONE, work // 2)
    async with bench.measuring(figures, work=work):
        async with bench.database.acquire() as connection:
            began = monotonic()
            for _ in range(single):
                await connection.execute(queries["enqueue"], 1)
            one_by_one = monotonic() - began
            for start in range(single, work, _AT_ONCE):
                await connection.execute(queries["enqueue"], min(_AT_ONCE, work - start))
            together = monotonic() - began - one_by_one
        queued = queries["is_queued"]
        await bench.until(lambda: bench.value(queued, work), "all work to reach the queue")
        seconds = monotonic() - began
        figures["one_by_one_per_second"] = round(single / one_by_one)
        figures["together_per_second"] = round((work - single) / together)
        figures["queued_seconds"] = round(seconds, 2)
        figures["queued_per_second"] = round(work / seconds)
    return figures


async def drain(bench: Bench, work: int) -> Figures:
    """Drain a full queue by workers; the rate counts from the first body until all is settled."""
    if not await bench.value(queries["is_queued"], work):
        await enqueue(bench, work)
    figures: Figures = {"runs": work}
    async with bench.measuring(figures, work=work):
        began = utc_now()
        await bench.start_workers()
        await bench.until(lambda: bench.value(queries["is_settled"]), "all work to settle")
        settled = utc_now()
        seconds = (settled - await bench.value(queries["first_start"], began)).total_seconds()
        figures["seconds"] = round(seconds, 2)
        figures["per_second"] = round(work / seconds)
    return figures


async def latency(bench: Bench, work: int) -> Figures:
    """Trigger manifests one after the other on an idle system."""
    await bench.start_workers()
    sent: dict[UUID, datetime] = {}
    for number in range(min(TRIGGERED, work)):
        moment = utc_now()
        triggered = (await bench.client.trigger(f"ask-{number}")).work
        if triggered is None:
            raise PartEnded(f"the trigger of ask-{number} made no work")
        sent[triggered] = moment
        await bench.until(lambda: bench.value(queries["is_settled"]), "a trigger to settle")
    figures: Figures = {"triggers": len(sent)}
    async with bench.database.acquire() as connection:
        [row] = await connection.fetch(queries["latency"], list(sent), list(sent.values()))
    for name in ("to_start_ms", "to_settled_ms"):
        figures[name] = {"p50": round(row[name][0], 1), "p99": round(row[name][1], 1)}
    return figures


async def burst(bench: Bench, work: int) -> Figures:
    """Let all manifests be due in the same second."""
    await bench.start_workers()
    due_at = (utc_now() + timedelta(seconds=5 + work / 500)).replace(microsecond=0)
    when = once(due_at.replace(tzinfo=None), tz="UTC")
    await bench.client.schedule_many(
        "burst", job="nothing", items=range(work), key=str, when=when, group="bench"
    )
    if utc_now() >= due_at:
        raise PartEnded("declaring took longer than planned: try less work")

    async def due() -> bool:
        return utc_now() >= due_at

    figures: Figures = {"due_at_once": work}
    async with bench.measuring(figures, work=work):
        await bench.until(due, "the due time")
        began = monotonic()
        await bench.until(lambda: bench.value(queries["is_fired"], due_at), "all to fire")
        await bench.until(lambda: bench.value(queries["is_settled"]), "all work to settle")
        seconds = monotonic() - began
        async with bench.database.acquire() as connection:
            [row] = await connection.fetch(queries["burst"], due_at)
        start = {name: round(row[f"start_{name}"], 2) for name in ("p50", "p99", "last")}
        figures["decided_seconds"] = round(row["decided_seconds"], 2)
        figures["decided_per_second"] = round(work / row["decided_seconds"])
        figures["settled_seconds"] = round(seconds, 2)
        figures["settled_per_second"] = round(work / seconds)
        figures["to_start_seconds"] = start
    return figures


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario for scenario in (enqueue, drain, latency, burst)
}


async def measure(
    chosen: Sequence[str], work: int, *, slots: int = 50, workers: int = 1
) -> dict[str, Figures]:
    """Measure scenarios one after the other, on servers of their own."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        async with AsyncExitStack() as stack:
            bench = Bench(stack, Path(folder), slots=slots, workers=workers)
            await bench.start()
            return {name: await SCENARIOS[name](bench, work) for name in chosen}


def main() -> None:
    """Read the scenarios and print their figures, with the cost of work in each process."""
    parser = argparse.ArgumentParser(description=__doc__)
    about = f"all, or some of {', '.join(SCENARIOS)}"
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=about)
    parser.add_argument("--work", type=read_size, default=5000, help="of each scenario (5k)")
    parser.add_argument("--slots", type=int, default=50, help="of each worker (50)")
    parser.add_argument("--workers", type=int, default=1, help="processes (1)")
    given = parser.parse_args()
    if unknown := set(given.scenarios) - set(SCENARIOS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; use {', '.join(SCENARIOS)}")
    # In their own order, because later ones build on earlier ones.
    chosen = [name for name in SCENARIOS if name in given.scenarios or not given.scenarios]
    print_figures(measure(chosen, given.work, slots=given.slots, workers=given.workers))
