"""Keys that count as they are pressed, without Enter and without being shown."""

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def listening(pressed: Callable[[str], None]) -> Iterator[None]:
    """Tell every key; afterwards the terminal is as it was. Ctrl-C is a signal as ever."""
    if not sys.stdin.isatty():
        yield
        return
    descriptor = sys.stdin.fileno()
    usual = termios.tcgetattr(descriptor)
    loop = asyncio.get_running_loop()

    def take() -> None:
        for key in os.read(descriptor, 64).decode(errors="replace"):
            pressed(key)

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, take)
    try:
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, usual)
