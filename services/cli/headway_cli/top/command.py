"""The command: ask and draw until the user quits."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
import msgspec
from headway_console.public import Overview, RunRow
from headway_contract.http import API
from headway_errors import RequestFailed, Unavailable
from headway_jetstream_kit.tasks import end
from headway_service_kit.process import run, stop_on_signals
from msgspec import Struct
from rich.console import Console, Group
from rich.live import Live

from headway_cli.serve.session import ConsoleAddress, Session, asking
from headway_cli.terminal import options
from headway_cli.terminal.output import print_json
from headway_cli.top.frame import State, draw

if TYPE_CHECKING:
    from headway.client.http_control import HttpControl

_RUNS = 50
# Width of the output without a terminal.
_COLUMNS = 120


class _RunPage(Struct, frozen=True, kw_only=True):
    items: list[RunRow]


@click.command()
@options.seconds_option(
    "--every",
    "every",
    "Interval between updates.",
    type=click.FloatRange(min=0.2, max=3600),
    default=2.0,
    show_default=True,
)
@asking
def top(session: Session, every: float) -> None:
    """Show the live state of the system.

    The leader, passes and throughput; active and waiting work of each group; runs in progress; the
    next fires and the dead letters. Press q or Ctrl-C to quit. Without a terminal it prints the
    state once.
    """
    address = session.address()
    if session.as_json:
        print_json(run(_once(address)))
    elif not sys.stdout.isatty():
        state = run(_once(address))
        for line in draw(state, where=address.url, columns=_COLUMNS):
            click.echo(line.plain.rstrip())
    else:
        run(_watch(address, every))


async def _once(address: ConsoleAddress) -> State:
    async with _control(address) as control:
        return await _read_state(control)


async def _watch(address: ConsoleAddress, every: float) -> None:
    stop, again = stop_on_signals(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, again.set)
    screen = Console()

    def pressed(key: str) -> None:
        (stop if key in "qQ" else again).set()

    async with _control(address) as control:
        state, note = await _read_state(control), ""
        with (
            _listening(pressed),
            Live(console=screen, screen=True, auto_refresh=False) as view,
        ):
            while not stop.is_set():
                lines = draw(
                    state,
                    where=address.url,
                    columns=screen.width,
                    lines=screen.height,
                    note=note,
                )
                view.update(Group(*lines), refresh=True)
                await _pause(stop, again, every)
                try:
                    state, note = await _read_state(control), ""
                except Unavailable as error:
                    note = f"{error}; trying again".replace("\n", " ")


async def _pause(stop: asyncio.Event, again: asyncio.Event, seconds: float) -> None:
    """Wait for the next update, a key or a signal."""
    again.clear()
    waiting = [asyncio.create_task(event.wait()) for event in (stop, again)]
    await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    await end(waiting)


async def _read_state(control: "HttpControl") -> State:
    overview, runs = await asyncio.gather(
        control.call("GET", f"{API}/overview"),
        control.call("GET", f"{API}/runs", query=[("state", "in_progress"), ("limit", str(_RUNS))]),
    )
    return State(overview=_decode(overview, Overview), runs=_decode(runs, _RunPage).items)


def _decode(body: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise RequestFailed(
            f"the console's answer cannot be read ({error}): compare its version with 'headway "
            "--version'"
        ) from error


def _control(address: ConsoleAddress) -> "HttpControl":
    # Not above: loading it takes as long as a short command.
    from headway.client.http_control import HttpControl  # noqa: PLC0415

    return HttpControl(address.url, token=address.token)


@contextmanager
def _listening(pressed: Callable[[str], None]) -> Iterator[None]:
    """Report every key as it is pressed; afterwards the terminal is as before."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    usual = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read_keys() -> None:
        for key in os.read(descriptor, 64).decode(errors="replace"):
            pressed(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read_keys)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, usual)
