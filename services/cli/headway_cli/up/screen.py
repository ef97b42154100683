"""What `up` shows: a live view under everything else in a terminal, calm lines elsewhere.

All of it goes to standard error, so that standard output is left to `--json`. While the view is
drawn, the log and the worker's output take the same way as the view; otherwise they would tear it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from headway_cli.up.summary import Summary, line
from headway_cli.up.view import render

Show = Callable[[Summary], None]

_LIVE_SECONDS = 0.5
_CALM_SECONDS = 5.0


class Screen:
    """Standard error, as long as `up` runs."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self.is_terminal = self._console.is_terminal
        self._is_live = self.is_terminal and not self._console.is_dumb_terminal
        # How many seconds to leave between two looks at the progress.
        self.pace = _LIVE_SECONDS if self._is_live else _CALM_SECONDS

    def say(self, text: str) -> None:
        """A line of our own."""
        self._write(Text(text, style="bold"), text)

    def show_line(self, text: str) -> None:
        """A line of somebody else, with the colours that it brings along."""
        self._write(Text.from_ansi(text), text)

    @contextmanager
    def watching(self) -> Iterator[Show]:
        """Yields what shows progress: over and over in a terminal, elsewhere where it is news."""
        if not self._is_live:
            yield self._lines()
            return
        with (
            Live(console=self._console, auto_refresh=False, transient=True) as view,
            _logging_by(self.show_line),
        ):
            yield lambda summary: view.update(render(summary), refresh=True)

    def _lines(self) -> Show:
        last = ""

        def show(summary: Summary) -> None:
            nonlocal last
            if (now := line(summary)) != last:
                last = now
                self.say(now)

        return show

    def _write(self, styled: Text, plain: str) -> None:
        if self._is_live:
            # Options of this call would apply to the view too, which is drawn along with it.
            self._console.print(styled)
        else:
            click.echo(plain, err=True)


class _ByLine(logging.Handler):
    """Hands formatted entries of the log to a function."""

    def __init__(self, show_line: Callable[[str], None]) -> None:
        super().__init__()
        self._show_line = show_line

    def emit(self, record: logging.LogRecord) -> None:
        """Show one entry."""
        self._show_line(self.format(record))


@contextmanager
def _logging_by(show_line: Callable[[str], None]) -> Iterator[None]:
    """Let the log take another way for a while, in its usual format."""
    root = logging.getLogger()
    usual = root.handlers[:]
    by_line = _ByLine(show_line)
    by_line.setFormatter(usual[0].formatter if usual else None)
    root.handlers[:] = [by_line]
    try:
        yield
    finally:
        root.handlers[:] = usual
