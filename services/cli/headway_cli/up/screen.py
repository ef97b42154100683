"""The output of `up` on standard error: lines, and in a terminal a live view below them."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from headway_cli.serve.live_view import State, draw, line_of


class Screen:
    """Standard error, as long as `up` runs."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self.is_terminal = self._console.is_terminal
        self.is_live = self.is_terminal and not self._console.is_dumb_terminal
        # Seconds between two updates.
        self.pace = 1.0 if self.is_live else 5.0
        self._last_line = ""

    def say(self, text: str) -> None:
        """Print a line of `up` itself."""
        self._write(Text(text, style="bold"), text)

    def show_line(self, text: str) -> None:
        """Print a line of the log or a worker, with its colours."""
        self._write(Text.from_ansi(text), text)

    @contextmanager
    def watching(self, where: str) -> Iterator[Callable[[State], None]]:
        """Yield the function that shows the state; without a terminal it prints changes."""
        if not self.is_live:
            yield self._say_change
            return
        with (
            Live(console=self._console, auto_refresh=False, transient=True) as view,
            # Now standard error is a proxy that prints above the view.
            _logging_to(sys.stderr),
        ):

            def show(state: State) -> None:
                size: Any = {"columns": self._console.width, "lines": self._console.height // 2}
                lines = draw(state, where=where, hint="Ctrl-C stops", **size)
                view.update(Group(Text(), *lines), refresh=True)

            yield show

    def _say_change(self, state: State) -> None:
        if self._last_line != (line := line_of(state)):
            self._last_line = line
            self.say(line)

    def _write(self, styled: Text, plain: str) -> None:
        if self.is_live:
            # Options of this call would apply to the view too.
            self._console.print(styled)
        else:
            click.echo(plain, err=True)


@contextmanager
def _logging_to(stream: TextIO) -> Iterator[None]:
    """Write the log to a stream while the body runs."""
    root = logging.getLogger().handlers
    handlers = [handler for handler in root if isinstance(handler, logging.StreamHandler)]
    usual = [handler.setStream(stream) for handler in handlers]
    try:
        yield
    finally:
        for handler, before in zip(handlers, usual, strict=True):
            handler.setStream(before)
