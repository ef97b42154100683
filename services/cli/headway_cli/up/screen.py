"""The output of `up` on standard error: a live view in a terminal, lines elsewhere."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TextIO

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway_cli.terminal.output import counted
from headway_cli.up.summary import Summary

_LIVE_SECONDS = 0.5
_LINE_SECONDS = 5.0
_STYLES = {"completed": "green", "failed": "red", "in_progress": "cyan", "cancelled": "yellow"}


class Screen:
    """Standard error, as long as `up` runs."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self.is_terminal = self._console.is_terminal
        self._is_live = self.is_terminal and not self._console.is_dumb_terminal
        # Seconds between two updates.
        self.pace = _LIVE_SECONDS if self._is_live else _LINE_SECONDS
        self._last_line = ""

    def say(self, text: str) -> None:
        """Print a line of `up` itself."""
        self._write(Text(text, style="bold"), text)

    def show_line(self, text: str) -> None:
        """Print a line of the log or a worker, with its colours."""
        self._write(Text.from_ansi(text), text)

    @contextmanager
    def watching(self) -> Iterator[Callable[[Summary], None]]:
        """Yield the function that shows progress; without a terminal it prints only changes."""
        if not self._is_live:
            yield self._say_changes
            return
        with (
            Live(console=self._console, auto_refresh=False, transient=True) as view,
            # Now standard error is a proxy that prints above the view.
            _logging_to(sys.stderr),
        ):
            yield lambda summary: view.update(_render(summary), refresh=True)

    def _say_changes(self, summary: Summary) -> None:
        progress = summary.progress
        line = (
            f"{counted(progress['manifests'], 'manifest')}, {progress['occurrences']} fired, "
            f"{progress['running']} running, {progress['waiting']} waiting, "
            f"{progress['completed']} completed, {progress['failed']} failed"
        )
        if line != self._last_line:
            self._last_line = line
            self.say(line)

    def _write(self, styled: Text, plain: str) -> None:
        if self._is_live:
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


def _render(summary: Summary) -> RenderableType:
    """Draw counts, next fires and the latest runs; names and messages shrink first."""
    parts: list[RenderableType] = [Text(), _counts(summary)]
    if summary.next_due:
        table = Table.grid(padding=(0, 2, 0, 0))
        for row in summary.next_due:
            table.add_row(_cut(row["external_id"]), _when(row["next_due_at"], summary.now))
        table.columns[1].no_wrap = True
        parts += [Text("next due", style="dim"), table]
    if summary.latest:
        table = Table.grid(padding=(0, 2, 0, 0))
        for run in summary.latest:
            table.add_row(
                _cut(run["manifest"] or ""),
                Text(run["state"].replace("_", " "), style=_STYLES.get(run["state"], "")),
                f"attempt {run['attempt']}" if run["attempt"] > 1 else "",
                _duration(run),
                _cut(" ".join((run["message"] or "").split()), style="dim"),
            )
        for column in table.columns[1:4]:
            column.no_wrap = True
        parts += [Text("latest runs", style="dim"), table]
    return Group(*parts)


def _counts(summary: Summary) -> Text:
    progress = summary.progress
    letters = counted(progress["dead_letters"], "dead letter")
    counts = [
        (counted(progress["manifests"], "manifest"), "bold"),
        (f"{progress['occurrences']} fired", ""),
        (f"{progress['running']} running", "cyan" if progress["running"] else "dim"),
        (f"{progress['completed']} completed", "green"),
        (f"{progress['failed']} failed", "red" if progress["failed"] else "dim"),
    ]
    others = [
        ("waiting", f"{progress['waiting']} waiting", ""),
        ("skipped", f"{progress['skipped']} skipped", ""),
        ("dead_letters", letters, "bold red"),
        ("blocked", f"{progress['blocked']} blocked", "bold red"),
        ("in_doubt", f"{progress['in_doubt']} possibly started twice", "yellow"),
    ]
    counts += [(text, style) for name, text, style in others if progress[name]]
    return Text("  ").join(Text(*count) for count in counts)


def _cut(text: str, style: str = "") -> Text:
    """Make a cell that is cut, not wrapped."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _when(moment: datetime, now: datetime) -> str:
    seconds = max(0, round((moment - now).total_seconds()))
    return f"in {seconds} s" if seconds < 120 else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _duration(run: Any) -> str:
    if run["started_at"] is None or run["finished_at"] is None:
        return ""
    return f"{(run['finished_at'] - run['started_at']).total_seconds():.2f} s"
