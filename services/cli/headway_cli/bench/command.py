"""The command, and the output of its figures."""

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from headway_service_kit.process import run, stop_on_signals

from headway_cli.bench.scenarios import SCENARIOS, Figures
from headway_cli.bench.servers import Bench
from headway_cli.serve.servers import unless_stopped
from headway_cli.terminal import options
from headway_cli.terminal.interaction import progressing
from headway_cli.terminal.output import json_option, print_answer, table


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)), metavar="[SCENARIO]...")
@options.number("--work", click.IntRange(10, 1_000_000), "Work of each scenario.", usual=5000)
@options.number("--slots", click.IntRange(1), "Concurrent runs of the worker.", usual=50)
@json_option
@options.debug_option
def bench(scenarios: tuple[str, ...], work: int, slots: int, as_json: bool) -> None:
    """Measure Headway on this machine.

    Runs everything on embedded servers in a temporary folder. The scenarios are enqueue (work from
    SQL), drain (a full queue), latency (one trigger at a time) and burst (everything due in one
    second); by default all of them.
    """
    # In their own order, because later ones build on earlier ones.
    chosen = [name for name in SCENARIOS if name in scenarios or not scenarios]

    async def measure() -> dict[str, Figures]:
        return await unless_stopped(_measure(chosen, work, slots), stop_on_signals())

    found = run(measure())
    print_answer(found, lambda: _lines(found), as_json=as_json)


async def _measure(chosen: Sequence[str], work: int, slots: int) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        async with AsyncExitStack() as stack:
            bench = Bench(stack, Path(folder), slots=slots)
            click.echo("starting PostgreSQL, NATS, scheduler and dispatcher", err=True)
            with progressing("starting"):
                await bench.start()
            for name in chosen:
                click.echo(f"measuring {name}", err=True)
                with progressing(name):
                    found[name] = await SCENARIOS[name](bench, work)
    return found


def _lines(found: dict[str, Figures]) -> list[str]:
    """Make a table of figures, and one of costs."""
    rows = [
        (name, figure.replace("_", " "), _shown(value))
        for name, figures in found.items()
        for figure, value in figures.items()
        if figure != "cost_each"
    ]
    costs: dict[str, dict[str, Any]] = {}
    for name, figures in found.items():
        if "cost_each" in figures:
            counts = {kind.replace("_", " "): n for kind, n in figures["cost_each"].items()}
            times = counts.pop("processor ms")
            costs[name] = {f"{process}, CPU ms": ms for process, ms in times.items()} | counts
    lines = table(("scenario", "figure", "value"), rows)
    if costs:
        kinds = dict.fromkeys(kind for cost in costs.values() for kind in cost)
        cost_rows = [(kind, *(_shown(cost.get(kind)) for cost in costs.values())) for kind in kinds]
        lines += ["", *table(("cost of each work", *costs), cost_rows)]
    return lines


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    return "" if value is None else f"{value:,}"
