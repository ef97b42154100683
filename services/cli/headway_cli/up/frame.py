"""The frame of `up`: the console, the state in a line, and a live table of manifests."""

import asyncio
from datetime import datetime

from headway.client.http_control import HttpControl
from headway_console.public import ManifestRow, Overview, RunRow
from msgspec import Struct
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from headway_cli.serve.live_view import (
    counts_line,
    meter,
    passes_line,
    pause_lines,
    read_state,
    throughput_line,
)
from headway_cli.terminal.output import first_line, printable
from headway_cli.terminal.times import age_text

# Manifests that are read, in the order of their ids.
_READ = 200
# Lines of the frame beside its head and the rows of its table.
_OTHER_LINES = 3
# The terminal writes ^C behind the frame, which must not begin another line.
_ROOM = 3
# A narrower window has no column of jobs.
_WITH_JOBS = 100


class UpState(Struct, frozen=True, kw_only=True):
    """The state of the system at one moment, with its manifests."""

    overview: Overview
    runs: list[RunRow]
    manifests: list[ManifestRow]


async def read_up_state(control: HttpControl) -> UpState:
    """Read the state and the manifests."""
    state, manifests = await asyncio.gather(
        read_state(control), control.list("/manifests", {}, ManifestRow, most=_READ)
    )
    return UpState(overview=state.overview, runs=state.runs, manifests=manifests)


def draw_frame(
    state: UpState, *, title: str, where: str, columns: int, lines: int
) -> RenderableType:
    """Draw the frame in at most so many columns and lines."""
    overview = state.overview
    head = [Text.assemble(("console ", "dim"), (where, f"bold link {where}"))]
    head += [*pause_lines(overview), counts_line(overview), throughput_line(overview)]
    if (late := passes_line(overview)).style != "green":
        head.append(late)
    for line in head:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Panel(
        Group(*head, _table(state, columns, max(1, lines - len(head) - _OTHER_LINES))),
        title=Text(f"headway up {title}", style="bold"),
        subtitle=Text(f"{overview.now:%H:%M:%S} UTC · Ctrl-C stops", style="dim"),
        title_align="left",
        subtitle_align="right",
        border_style="cyan",
        width=columns - _ROOM,
    )


def _table(state: UpState, columns: int, lines: int) -> Table:
    """Draw the manifests that matter most now: blocked or failing, running, the next to fire."""
    running = {run.manifest: run for run in state.runs}
    table = Table(box=None, expand=True, padding=(0, 2, 0, 0), header_style="bold cyan")
    names = ("MANIFEST", "JOB", "NOW", "NEXT", "LAST RUN")
    shown = [name for name in names if name != "JOB" or columns >= _WITH_JOBS]
    for name in shown:
        ratio = {"LAST RUN": 3, "NOW": 2, "MANIFEST": 2}.get(name, 1)
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=ratio)
    now = state.overview.now
    order = sorted(state.manifests, key=lambda row: _rank(row, row.external_id in running, now))
    fits = order if len(order) <= lines else order[: lines - 1]
    for row in fits:
        cells = {
            "MANIFEST": Text(printable(row.external_id)),
            "JOB": Text(printable(row.job), style="dim"),
            "NOW": _now(row, running.get(row.external_id), now),
            "NEXT": _next(row, now),
            "LAST RUN": _last(row, now),
        }
        table.add_row(*(cells[name] for name in shown))
    if more := state.overview.counts.manifests - len(fits):
        table.add_row(Text(f"… and {more} more", style="dim"))
    return table


def _rank(row: ManifestRow, runs: bool, now: datetime) -> tuple[object, ...]:
    failed = row.last_run is not None and row.last_run.state == "failed"
    distance = (row.next_fire_at - now).total_seconds() if row.next_fire_at else float("inf")
    return (row.blocked_by is None, not failed, not runs, distance, row.external_id)


def _now(row: ManifestRow, run: RunRow | None, now: datetime) -> Text:
    if row.blocked_by is not None:
        return Text("blocked", style="bold red")
    if run is not None:
        age = age_text(run.started_at or run.created_at, now)
        line = Text(f"running {age}", style="cyan")
        if run.percent is not None:
            line.append(f" {meter(run.percent / 100)} {run.percent:.0f} %")
        return line.append(f" {printable(run.message)}" if run.message else "")
    if row.outstanding:
        return Text("waits", style="yellow")
    if row.held_by:
        return Text(printable(row.held_by.replace("_", " ")), style="yellow")
    return Text("-", style="dim")


def _next(row: ManifestRow, now: datetime) -> Text:
    at = row.next_fire_at
    if at is None:
        return Text(f"after {row.depends_on}" if row.depends_on else "-", style="dim")
    return Text("now" if at <= now else f"in {age_text(now, at)}")


def _last(row: ManifestRow, now: datetime) -> Text:
    run = row.last_run
    if run is None or run.finished_at is None:
        return Text("-", style="dim")
    styles = {"completed": "green", "failed": "bold red"}
    line = Text(run.state, style=styles.get(run.state, "yellow"))
    line.append(f" {age_text(run.finished_at, now)} ago", style="dim")
    if run.failure:
        line.append(f"  {printable(first_line(run.failure, 200))}", style="red")
    return line
