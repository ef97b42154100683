"""The output of `up` on standard error: plain lines, or in a terminal a frame below the log.

The frame stays at the bottom: a terminal keeps only lines that leave its window at the top, and so
the whole log, tracebacks included, can be scrolled and copied.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.live import Live
from rich.text import Text

from headway_cli.serve.live_view import line_of
from headway_cli.up.frame import UpState, draw_frame
from headway_cli.up.log_lines import Entry, drawn, entry_of_line, entry_of_record, is_shown


class Screen:
    """Standard error, as long as `up` runs. With `reads_log` it shows log entries as lines."""

    def __init__(self, *, reads_log: bool) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.is_terminal = self.console.is_terminal
        self.is_live = self.is_terminal and not self.console.is_dumb_terminal
        # Seconds between two updates.
        self.pace = 1.0 if self.is_live else 5.0
        self.reads_log = reads_log
        self._last_line = ""
        root = logging.getLogger()
        handler = _Handler(self, root.handlers[0].formatter)
        root.handlers[:] = [handler]

    def say(self, text: str) -> None:
        """Print a line of `up` itself."""
        self._write(Text(text, style="bold"))

    def show_line(self, text: str) -> None:
        """Print a line of a worker: an entry of its log, or any other output with its colours."""
        entry = entry_of_line(text) if self.reads_log else None
        if entry is None:
            self._write(Text.from_ansi(text), text)
        else:
            self.show_entry(entry)

    def show_entry(self, entry: Entry) -> None:
        """Print an entry of the log."""
        if is_shown(entry) or logging.getLogger().isEnabledFor(logging.DEBUG):
            self._write(drawn(entry))

    @contextmanager
    def watching(self, title: str, where: str) -> Iterator[Callable[[UpState], None]]:
        """Yield the function that shows the state; without a terminal it prints changes."""
        if not self.is_live:
            yield self._say_change
            return
        with Live(console=self.console, auto_refresh=False, transient=True) as view:

            def show(state: UpState) -> None:
                width, lines = self.console.width, self.console.height // 2
                frame = draw_frame(state, title=title, where=where, columns=width, lines=lines)
                view.update(frame, refresh=True)

            yield show

    def _say_change(self, state: UpState) -> None:
        if self._last_line != (line := line_of(state.overview, len(state.runs))):
            self._last_line = line
            self.say(line)

    def _write(self, styled: Text, plain: str | None = None) -> None:
        if self.is_live:
            # Long lines are left to the terminal, so that they are copied as one.
            self.console.print(styled, soft_wrap=True)
        else:
            click.echo(styled.plain if plain is None else plain, err=True)


class _Handler(logging.Handler):
    """Shows the log of this process on the screen."""

    def __init__(self, screen: Screen, formatter: logging.Formatter | None) -> None:
        super().__init__()
        self._screen = screen
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        try:
            if self._screen.reads_log:
                self._screen.show_entry(entry_of_record(record))
            else:
                self._screen.show_line(self.format(record))
        except Exception:  # noqa: BLE001 - as every handler of `logging`
            self.handleError(record)
