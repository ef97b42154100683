"""The command: ask and draw until the user quits."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from headway_errors import Unavailable
from headway_service_kit.process import run, stop_on_signals
from rich.console import Console, Group
from rich.live import Live

from headway_cli.serve.lifetime import wait_for_stop
from headway_cli.serve.live_view import State, draw, read_state
from headway_cli.serve.session import ConsoleAddress, Session, command
from headway_cli.terminal import options

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
            return await read_state(control)

    state = run(read())
    session.print(
        state,
        lambda: [line.plain.rstrip() for line in draw(state, where=address.url, columns=_COLUMNS)],
    )


async def _watch(address: ConsoleAddress, every: float) -> None:
    stop, screen = stop_on_signals(), Console()
    async with address.control() as control:
        state, note = await read_state(control), ""
        with _quitting(stop), Live(console=screen, screen=True, auto_refresh=False) as view:
            while not stop.is_set():
                size: Any = {"columns": screen.width, "lines": screen.height}
                lines = draw(state, where=address.url, hint="q quits", note=note, **size)
                view.update(Group(*lines), refresh=True)
                await wait_for_stop(stop, every)
                try:
                    state, note = await read_state(control), ""
                except Unavailable as error:
                    note = f"{error}; trying again".replace("\n", " ")


@contextmanager
def _quitting(stop: asyncio.Event) -> Iterator[None]:
    """Set the event when q is pressed; afterwards the terminal is as before."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    usual = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def read_keys() -> None:
        if b"q" in os.read(descriptor, 64).lower():
            stop.set()

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read_keys)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, usual)
