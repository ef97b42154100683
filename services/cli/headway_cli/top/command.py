"""The command: ask, draw, and again, until somebody has seen enough."""

import asyncio
import contextlib
import signal
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec
from headway_console.reading.overview import Overview
from headway_console.reading.runs import RunRow
from headway_contract.routes import API
from headway_errors import RequestFailed, Unavailable
from headway_service_kit.process import run, stop_on_signals
from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live

from headway_cli.terminal import options
from headway_cli.terminal.connect import AskSettings, Reached, asking, json_option, print_json
from headway_cli.top.frame import Standing, draw
from headway_cli.top.keyboard import listening

if TYPE_CHECKING:
    from headway.client.http_control import HttpControl

_RUNS = 50
# Where nobody's window says how wide it is.
_PAPER_COLUMNS = 120


class RunPage(Struct, frozen=True, kw_only=True):
    """A page of runs."""

    items: list[RunRow]


@click.command()
@options.seconds_option(
    "--every",
    "every",
    "How often to look.",
    type=click.FloatRange(min=0.2, max=3600),
    default=2.0,
    show_default=True,
)
@json_option
@asking
def top(reached: Reached, every: float, as_json: bool) -> None:
    """Show how things stand, live in the terminal.

    Leader, passes and throughput; what each group has under way, and what waits and why; the runs
    under way with their progress; what is due next and what has failed for good. q or Ctrl-C ends
    it. Elsewhere than in a terminal it prints one such view and ends.
    """
    given = reached.settings()
    if as_json:
        print_json(run(_once(given)))
    elif not sys.stdout.isatty():
        standing = run(_once(given))
        for line in draw(standing, where=given.url, columns=_PAPER_COLUMNS):
            click.echo(line.plain.rstrip())
    else:
        run(_watch(given, every))


async def _once(given: AskSettings) -> Standing:
    async with _control(given) as control:
        return await _look(control)


async def _watch(given: AskSettings, every: float) -> None:
    stop, again = stop_on_signals(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, again.set)
    screen = Console()

    def pressed(key: str) -> None:
        (stop if key in "qQ" else again).set()

    async with _control(given) as control:
        standing, note = await _look(control), ""
        with (
            listening(pressed),
            Live(console=screen, screen=True, auto_refresh=False) as view,
        ):
            while not stop.is_set():
                lines = draw(
                    standing,
                    where=given.url,
                    columns=screen.width,
                    lines=screen.height,
                    note=note,
                )
                view.update(Group(*lines), refresh=True)
                await _pause(stop, again, every)
                try:
                    standing, note = await _look(control), ""
                except Unavailable as error:
                    note = f"{error}; trying again".replace("\n", " ")


async def _pause(stop: asyncio.Event, again: asyncio.Event, seconds: float) -> None:
    """Until it is time to look again, or somebody wants something."""
    again.clear()
    waiting = [asyncio.create_task(one.wait()) for one in (stop, again)]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await one


async def _look(control: "HttpControl") -> Standing:
    overview, runs = await asyncio.gather(
        control.call("GET", f"{API}/overview"),
        control.call("GET", f"{API}/runs", query=[("state", "in_progress"), ("limit", str(_RUNS))]),
    )
    return Standing(overview=_read(overview, Overview), runs=_read(runs, RunPage).items)


def _read(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise RequestFailed(
            f"the console's answer cannot be read ({error}): is it of another version than this "
            "command? 'headway --version' says which this is"
        ) from error


def _control(given: AskSettings) -> "HttpControl":
    # Not above: it takes longer to load than a list of the commands may take.
    from headway.client.http_control import HttpControl  # noqa: PLC0415

    return HttpControl(given.url, token=given.token)
