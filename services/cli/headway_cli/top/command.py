"""The command: ask and draw until the user quits."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from headway.client.http_control import HttpControl
from headway_console.public import Overview, RunRow
from headway_errors import Unavailable
from headway_jetstream_kit.tasks import end
from headway_service_kit.process import run, stop_on_signals
from rich.console import Console, Group
from rich.live import Live

from headway_cli.serve.session import ConsoleAddress, Session, command
from headway_cli.terminal import options
from headway_cli.top.frame import State, draw

_RUNS = 50
_INTERVAL = click.FloatRange(min=0.2, max=3600)
# Width of the output without a terminal.
_COLUMNS = 120


@command()
@options.number("--every", _INTERVAL, "Seconds between updates.", usual=2.0, metavar="SECONDS")
def top(session: Session, every: float) -> None:
    """Show the live state of the system.

    The leader, passes and throughput; active and waiting work of each group; runs in progress; the
    next fires and the dead letters. Press q or Ctrl-C to quit. Without a terminal it prints the
    state once.
    """
    address = session.address()
    if sys.stdout.isatty() and not session.as_json:
        run(_watch(address, every))
        return

    async def read() -> State:
        async with address.control() as control:
            return await _read_state(control)

    state = run(read())
    session.print(
        state,
        lambda: [line.plain.rstrip() for line in draw(state, where=address.url, columns=_COLUMNS)],
    )


async def _watch(address: ConsoleAddress, every: float) -> None:
    stop, again = stop_on_signals(), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGWINCH, again.set)
    screen = Console()

    def pressed(key: str) -> None:
        (stop if key in "qQ" else again).set()

    async with address.control() as control:
        state, note = await _read_state(control), ""
        with _listening(pressed), Live(console=screen, screen=True, auto_refresh=False) as view:
            while not stop.is_set():
                size = {"columns": screen.width, "lines": screen.height}
                view.update(Group(*draw(state, where=address.url, note=note, **size)), refresh=True)
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


async def _read_state(control: HttpControl) -> State:
    overview, runs = await asyncio.gather(
        control.show("/overview", Overview),
        control.list("/runs", {"state": "in_progress"}, RunRow, most=_RUNS),
    )
    return State(overview=overview, runs=runs)


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
