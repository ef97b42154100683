"""The output of `up`: a live view in a terminal, lines of text elsewhere.

All of it goes to standard error; standard output is for `--json`. While the view is drawn, the log
and the worker's output are printed above it by the same console, or they would tear it.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headway_cli.terminal.output import counted
from headway_cli.up.summary import LatestRun, Progress, Summary, summary_text

Show = Callable[[Summary], None]

_LIVE_SECONDS = 0.5
_LINE_SECONDS = 5.0
_STATE_STYLES = {
    "completed": "green",
    "failed": "red",
    "in_progress": "cyan",
    "cancelled": "yellow",
}


class Screen:
    """Standard error, as long as `up` runs."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self.is_terminal = self._console.is_terminal
        self._is_live = self.is_terminal and not self._console.is_dumb_terminal
        # Seconds between two updates.
        self.pace = _LIVE_SECONDS if self._is_live else _LINE_SECONDS

    def say(self, text: str) -> None:
        """Print a line of `up` itself."""
        self._write(Text(text, style="bold"), text)

    def show_line(self, text: str) -> None:
        """Print a line of the log or a worker, with its colours."""
        self._write(Text.from_ansi(text), text)

    @contextmanager
    def watching(self) -> Iterator[Show]:
        """Yield the function that shows progress; without a terminal it prints only changes."""
        if not self._is_live:
            yield self._lines()
            return
        with (
            Live(console=self._console, auto_refresh=False, transient=True) as view,
            _logging_to(self.show_line),
        ):
            yield lambda summary: view.update(_render(summary), refresh=True)

    def _lines(self) -> Show:
        last = ""

        def show(summary: Summary) -> None:
            nonlocal last
            if (now := summary_text(summary)) != last:
                last = now
                self.say(now)

        return show

    def _write(self, styled: Text, plain: str) -> None:
        if self._is_live:
            # Options of this call would apply to the view too.
            self._console.print(styled)
        else:
            click.echo(plain, err=True)


class _LineHandler(logging.Handler):
    """Passes formatted log entries to a function."""

    def __init__(self, show_line: Callable[[str], None]) -> None:
        super().__init__()
        self._show_line = show_line

    def emit(self, record: logging.LogRecord) -> None:
        """Show one log entry."""
        self._show_line(self.format(record))


@contextmanager
def _logging_to(show_line: Callable[[str], None]) -> Iterator[None]:
    """Send the log to a function while the body runs, in its usual format."""
    root = logging.getLogger()
    usual = root.handlers[:]
    handler = _LineHandler(show_line)
    handler.setFormatter(usual[0].formatter if usual else None)
    root.handlers[:] = [handler]
    try:
        yield
    finally:
        root.handlers[:] = usual


def _render(summary: Summary) -> RenderableType:
    """Draw counts, next fires and the latest runs."""
    parts: list[RenderableType] = [Text(), _counts(summary.progress)]
    if summary.next_due:
        parts += [Text("next due", style="dim"), _next_due(summary)]
    if summary.latest:
        parts += [Text("latest runs", style="dim"), _latest_runs(summary.latest)]
    return Group(*parts)


def _counts(progress: Progress) -> Text:
    counts = [
        (counted(progress.manifests, "manifest"), "bold"),
        (f"{progress.occurrences} fired", ""),
        (f"{progress.running} running", "cyan" if progress.running else "dim"),
        (f"{progress.completed} completed", "green"),
        (f"{progress.failed} failed", "red" if progress.failed else "dim"),
    ]
    others = [
        (f"{progress.waiting} waiting", progress.waiting, ""),
        (f"{progress.skipped} skipped", progress.skipped, ""),
        (counted(progress.dead_letters, "dead letter"), progress.dead_letters, "bold red"),
        (f"{progress.blocked} blocked", progress.blocked, "bold red"),
        (f"{progress.in_doubt} possibly started twice", progress.in_doubt, "yellow"),
    ]
    counts += [(text, style) for text, number, style in others if number]
    return Text("  ").join(Text(*count) for count in counts)


def _next_due(summary: Summary) -> Table:
    table = _table("name", "when")
    for external_id, next_due_at in summary.next_due:
        table.add_row(_cut(external_id), _when(next_due_at, summary.now))
    return table


def _latest_runs(latest: list[LatestRun]) -> Table:
    table = _table("name", "state", "attempt", "duration", "message")
    for run in latest:
        table.add_row(
            _cut(run.manifest or ""),
            Text(run.state.replace("_", " "), style=_STATE_STYLES.get(run.state, "")),
            f"attempt {run.attempt}" if run.attempt > 1 else "",
            _duration(run),
            _cut(" ".join((run.message or "").split()), style="dim"),
        )
    return table


def _table(*columns: str) -> Table:
    """Make a table without lines; names and messages shrink first."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(no_wrap=column not in ("name", "message"))
    return table


def _cut(text: str, style: str = "") -> Text:
    """Make a cell that is cut, not wrapped."""
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _when(moment: datetime, now: datetime) -> str:
    seconds = max(0, round((moment - now).total_seconds()))
    if seconds < 120:
        return f"in {seconds} s"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _duration(run: LatestRun) -> str:
    if run.started_at is None or run.finished_at is None:
        return ""
    return f"{(run.finished_at - run.started_at).total_seconds():.2f} s"
