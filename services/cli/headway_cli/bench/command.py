"""The command, and how its figures are printed."""

import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import click
from headway_service_kit.process import run, stop_on_signals

from headway_cli.bench.counters import Cost
from headway_cli.bench.scenarios import SCENARIOS, Figures
from headway_cli.bench.servers import Ground
from headway_cli.serve.wait_for_servers import unless_stopped
from headway_cli.terminal import options
from headway_cli.terminal.connect import json_option, print_json, print_lines
from headway_cli.terminal.progress import progressing
from headway_cli.terminal.tables import table

_WORK = 5000


@click.command()
@click.argument("scenarios", nargs=-1, type=click.Choice(list(SCENARIOS)), metavar="[SCENARIO]...")
@click.option(
    "--work",
    type=click.IntRange(min=10, max=1_000_000),
    default=_WORK,
    show_default=True,
    help="How much work each scenario does.",
)
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many runs the worker takes at once.",
)
@json_option
@options.debug_option
def bench(scenarios: tuple[str, ...], work: int, slots: int, as_json: bool) -> None:
    """Measure Headway on this machine.

    Runs everything on embedded servers in a folder of its own, and takes away all of it. The
    scenarios are enqueue (work from SQL), drain (a full queue), latency (one trigger at a time)
    and burst (everything due in one second); without a name, all of them.
    """
    # In the order that they build on each other, however they were named.
    chosen = [name for name in SCENARIOS if name in scenarios or not scenarios]
    found = run(_measure(chosen, work, slots))
    if as_json:
        print_json(found)
    else:
        print_lines(_in_words(found))


async def _measure(chosen: Sequence[str], work: int, slots: int) -> dict[str, Figures]:
    stop = stop_on_signals()
    return await unless_stopped(_run(chosen, work, slots), stop)


async def _run(chosen: Sequence[str], work: int, slots: int) -> dict[str, Figures]:
    found: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        async with AsyncExitStack() as stack:
            ground = Ground(stack, Path(folder), slots=slots)
            click.echo("starting PostgreSQL, NATS, scheduler and dispatcher", err=True)
            with progressing("starting"):
                await ground.lay()
            for name in chosen:
                click.echo(f"measuring {name}", err=True)
                with progressing(name):
                    if name in ("latency", "burst"):
                        await ground.need_worker()
                    found[name] = await SCENARIOS[name](ground, work)
    return found


def _in_words(found: dict[str, Figures]) -> list[str]:
    """A table of figures, and one of costs where they were counted."""
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
        lines += ["", *table(("cost of each piece of work", *costs), _cost_rows(costs))]
    return lines


def _cost_rows(costs: dict[str, Cost]) -> list[tuple[str, ...]]:
    processes = dict.fromkeys(name for one in costs.values() for name in one.processor_ms)
    rows = [
        (
            f"{name}, ms of processor",
            *(_shown(one.processor_ms.get(name)) for one in costs.values()),
        )
        for name in processes
    ]
    kinds = ("statements", "row_operations", "commits", "messages_in", "messages_out")
    rows += [
        (kind.replace("_", " "), *(_shown(getattr(one, kind)) for one in costs.values()))
        for kind in kinds
    ]
    return rows


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one:g}" for name, one in value.items())
    return "" if value is None else f"{value:,}"
