"""The command, and the output of its figures."""

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from headway_service_kit.process import run, stop_on_signals

from headway_cli.bench.counters import Cost
from headway_cli.bench.scenarios import SCENARIOS, Figures
from headway_cli.bench.servers import Bench
from headway_cli.serve.servers import unless_stopped
from headway_cli.terminal import options
from headway_cli.terminal.interaction import progressing
from headway_cli.terminal.output import json_option, print_json, print_lines, table

_WORK = 5000


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)), metavar="[SCENARIO]...")
@click.option(
    "--work",
    type=click.IntRange(min=10, max=1_000_000),
    default=_WORK,
    show_default=True,
    help="Amount of work of each scenario.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="Concurrent runs of the worker.",
)
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
    found = run(_measure(chosen, work, slots))
    if as_json:
        print_json(found)
    else:
        print_lines(_lines(found))


async def _measure(chosen: Sequence[str], work: int, slots: int) -> dict[str, Figures]:
    stop = stop_on_signals()
    return await unless_stopped(_run(chosen, work, slots), stop)


async def _run(chosen: Sequence[str], work: int, slots: int) -> dict[str, Figures]:
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
                    if name in ("latency", "burst"):
                        await bench.need_worker()
                    found[name] = await SCENARIOS[name](bench, work)
    return found


def _lines(found: dict[str, Figures]) -> list[str]:
    """Make a table of figures, and one of costs."""
    rows = [
        (name, figure.replace("_", " "), _shown(value))
        for name, figures in found.items()
        for figure, value in figures.items()
        if not isinstance(value, Cost)
    ]
    costs = {
        name: value
        for name, figures in found.items()
        for value in figures.values()
        if isinstance(value, Cost)
    }
    lines = table(("scenario", "figure", "value"), rows)
    if costs:
        lines += ["", *table(("cost of each work", *costs), _cost_rows(costs))]
    return lines


def _cost_rows(costs: dict[str, Cost]) -> list[tuple[str, ...]]:
    processes = dict.fromkeys(name for cost in costs.values() for name in cost.processor_ms)
    rows = [
        (
            f"{name}, CPU ms",
            *(_shown(cost.processor_ms.get(name)) for cost in costs.values()),
        )
        for name in processes
    ]
    kinds = ("statements", "row_operations", "commits", "messages_in", "messages_out")
    rows += [
        (kind.replace("_", " "), *(_shown(getattr(cost, kind)) for cost in costs.values()))
        for kind in kinds
    ]
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    return "" if value is None else f"{value:,}"
