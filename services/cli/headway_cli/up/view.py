"""The live view of `up`: how the summary looks in a terminal."""

from datetime import datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway_cli.up.summary import LatestRun, Progress, Summary, counted

_STATE_STYLES = {
    "completed": "green",
    "failed": "red",
    "in_progress": "cyan",
    "cancelled": "yellow",
}


def render(summary: Summary) -> RenderableType:
    """Counts, what is due next, and the latest runs."""
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
    seldom = [
        (f"{progress.waiting} waiting", progress.waiting, ""),
        (f"{progress.skipped} skipped", progress.skipped, ""),
        (counted(progress.dead_letters, "dead letter"), progress.dead_letters, "bold red"),
        (f"{progress.blocked} blocked", progress.blocked, "bold red"),
        (f"{progress.in_doubt} maybe begun twice", progress.in_doubt, "yellow"),
    ]
    counts += [(text, style) for text, number, style in seldom if number]
    return Text("  ").join(Text(*one) for one in counts)


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
    """A table without lines; names and messages make room for the rest."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(no_wrap=column not in ("name", "message"))
    return table


def _cut(text: str, style: str = "") -> Text:
    """A cell that is cut rather than wrapped."""
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
