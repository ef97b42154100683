"""The command, its scenarios, and the output of their figures."""

import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from headway import once
from headway_clock import monotonic, utc_now
from headway_service_kit.process import run, stop_on_signals

from headway_cli.bench.measured_app import TRIGGERED
from headway_cli.bench.servers import Bench, queries
from headway_cli.serve.lifetime import unless_stopped
from headway_cli.serve.running import PartEnded
from headway_cli.terminal import options
from headway_cli.terminal.output import print_answer, progressing, table

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


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)), metavar="[SCENARIO]...")
@options.number("--work", click.IntRange(10, 1_000_000), "Work of each scenario.", usual=5000)
@options.number("--slots", click.IntRange(1), "Concurrent runs of each worker.", usual=50)
@options.number("--workers", click.IntRange(1, 20), "Worker processes.", usual=1)
@options.json_option
@options.debug_option
def bench(scenarios: tuple[str, ...], work: int, as_json: bool, **processes: int) -> None:
    """Measure Headway on this machine.

    Runs everything on embedded servers in a temporary folder. The scenarios are enqueue (work from
    SQL), drain (a full queue), latency (one trigger at a time) and burst (everything due in one
    second); by default all of them.
    """
    # In their own order, because later ones build on earlier ones.
    chosen = [name for name in SCENARIOS if name in scenarios or not scenarios]

    async def measure() -> dict[str, Figures]:
        return await unless_stopped(_measure(chosen, work, processes), stop_on_signals())

    found = run(measure())
    rows = [(name, *row) for name, figures in found.items() for row in _rows(figures)]
    print_answer(found, lambda: table(("scenario", "figure", "value"), rows), as_json=as_json)


async def _measure(
    chosen: Sequence[str], work: int, processes: Mapping[str, int]
) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        async with AsyncExitStack() as stack:
            bench = Bench(stack, Path(folder), **processes)
            click.echo("starting PostgreSQL, NATS, scheduler and dispatcher", err=True)
            with progressing("starting"):
                await bench.start()
            for name in chosen:
                click.echo(f"measuring {name}", err=True)
                with progressing(name):
                    found[name] = await SCENARIOS[name](bench, work)
    return found


def _rows(figures: Mapping[str, Any], *above: str) -> Iterator[tuple[str, str]]:
    """Make a row of each figure, named by its path."""
    for name, value in figures.items():
        path = (*above, name.replace("_", " "))
        if isinstance(value, dict):
            yield from _rows(value, *path)
        else:
            yield " ".join(path), f"{value:,}"
