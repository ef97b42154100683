"""The live view of `top` and `up`: lines that fit into a window, drawn from answers of the API."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from headway.client.http_control import HttpControl
from headway_console.public import GroupRow, Overview, RunRow, state_of
from headway_contract.manifests import PauseStatus
from msgspec import Struct
from rich.text import Text

from headway_cli.terminal.output import counted, counts_text, first_line, printable
from headway_cli.terminal.times import age_text

_BARS = " ▁▂▃▄▅▆▇█"
_METER = 12
_MINUTES = 5
_DAY_BARS = 12
# A section is shown only if it gets so many lines.
_FEWEST = 2
_RUNS = 50


class State(Struct, frozen=True, kw_only=True):
    """The state of the system at one moment."""

    overview: Overview
    runs: list[RunRow]


async def read_state(control: HttpControl) -> State:
    """Read the overview and the runs in progress."""
    overview, runs = await asyncio.gather(
        control.show("/overview", Overview),
        control.list("/runs", {"state": "in_progress"}, RunRow, most=_RUNS),
    )
    return State(overview=overview, runs=runs)


def draw(
    state: State,
    *,
    where: str,
    columns: int,
    lines: int | None = None,
    hint: str = "",
    note: str = "",
) -> list[Text]:
    """Draw a frame of at most so many columns and lines (`None`: any number)."""
    overview = state.overview
    title = [Text("headway", style="bold"), Text(f"{overview.now:%Y-%m-%d %H:%M:%S} UTC")]
    title += [Text(hint, style="dim")] if hint else []
    drawn = [Text("  ").join([*title, Text(where)])]
    drawn += pause_lines(overview)
    drawn += [
        _services(overview),
        passes_line(overview),
        throughput_line(overview),
        counts_line(overview),
    ]
    drawn += [Text(printable(note), style="bold red")] if note else []
    width = max((len(row.name) for row in overview.groups), default=0)
    drawings = {
        f"{'GROUP'.ljust(width)}  ACTIVE": _groups(overview.groups, width),
        "RUNS IN PROGRESS": _runs(state),
        "NEXT FIRES": _coming(overview),
        "DEAD LETTERS": _failures(overview),
    }
    sections = {heading: list(drawing) for heading, drawing in drawings.items()}
    room = None if lines is None else lines - len(drawn)
    given = shares([len(section) for section in sections.values()], room)
    for (heading, section), share in zip(sections.items(), given, strict=True):
        if share:
            if len(section) > share:
                more = f"… and {len(section) - share + 1} more"
                section[share - 1 :] = [Text(more, style="dim")]
            drawn += [Text(), Text(heading, style="bold cyan"), *section]
    for line in drawn:
        line.truncate(columns, overflow="ellipsis")
    return drawn if lines is None else drawn[:lines]


def shares(wanted: Sequence[int], room: int | None) -> list[int]:
    """Distribute lines among sections, in turns; each needs two more lines for its heading."""
    if room is None:
        return list(wanted)
    given = [0] * len(wanted)
    for index, number in enumerate(wanted):
        least = min(number, _FEWEST)
        if least and room >= least + 2:
            given[index] = least
            room -= least + 2
    while room > 0 and any(0 < have < want for have, want in zip(given, wanted, strict=True)):
        for index, number in enumerate(wanted):
            if room > 0 and 0 < given[index] < number:
                given[index] += 1
                room -= 1
    return given


def pause_lines(overview: Overview) -> list[Text]:
    """Describe the pauses of all manifests, with the time that is left of each."""
    return [_paused(pause, overview.now) for pause in overview.paused]


def _paused(pause: PauseStatus, now: datetime) -> Text:
    left = "until resumed" if pause.until is None else f"for {age_text(now, pause.until)} more"
    why = f", reason: {pause.reason}" if pause.reason else ""
    text = f"PAUSED: all manifests {left}, by {pause.by}{why} · headway resume {pause.id}"
    return Text(printable(text), style="bold black on yellow")


def _services(overview: Overview) -> Text:
    leader, dispatchers = overview.health.leader, len(overview.health.dispatchers)
    scheduler = Text("no scheduler has ticked yet", style="yellow")
    if leader is not None:
        scheduler = Text(f"leader {leader.holder.rpartition(':')[0] or leader.holder}")
        if leader.ticked_at is not None:
            scheduler.append(f", ticked {age_text(leader.ticked_at, overview.now)} ago")
    workers = f"{counted(overview.counts.workers, 'worker')}, {overview.counts.slots} slots"
    parts = [
        scheduler,
        Text(counted(dispatchers, "dispatcher"), style="" if dispatchers else "bold red"),
        Text(workers, style="" if overview.counts.workers else "bold red"),
    ]
    return Text(" · ").join(parts)


def passes_line(overview: Overview) -> Text:
    """Describe the passes that do not keep up."""
    late = [
        (backlog, state)
        for backlog in overview.health.backlogs
        if (state := state_of(backlog, now=overview.now)) != "ok"
    ]
    if not late:
        return Text("passes: all keep up", style="green")
    words = [f"{b.name.replace('_', ' ')} {state} ({b.waiting} waiting)" for b, state in late]
    return Text(f"passes: {', '.join(words)}", style="bold red")


def throughput_line(overview: Overview) -> Text:
    """Describe the runs that ended lately."""
    lately = overview.lately
    ended = lately.completed + lately.failed + lately.cancelled
    return Text.assemble(
        f"last {_MINUTES} min: {lately.completed} completed, ",
        (f"{lately.failed} failed", "red" if lately.failed else ""),
        f", {lately.cancelled} cancelled ({ended / _MINUTES / 60:.1f}/s)  24 h ",
        (bars([day.completed + day.failed + day.cancelled for day in overview.day]), "green"),
    )


def bars(numbers: Sequence[int]) -> str:
    """Draw numbers as at most twelve bars of one character; the highest is full."""
    width = -(-len(numbers) // _DAY_BARS) or 1
    sums = [sum(numbers[at : at + width]) for at in range(0, len(numbers), width)]
    most = max(sums, default=0)
    return "".join(_BARS[-(-number * 8 // most) if most else 0] for number in sums)


def line_of(overview: Overview, running: int) -> str:
    """Describe the state in one line, for output that is no terminal."""
    lately = overview.lately
    counts = f"{lately.completed} completed and {lately.failed} failed in {_MINUTES} min"
    paused = "all manifests are paused · " if overview.paused else ""
    return f"{paused}{counts_line(overview).plain} · {running} running · {counts}"


def counts_line(overview: Overview) -> Text:
    """Describe the manifests, what is wrong with them, and waiting work."""
    counts = overview.counts
    others = (
        (counts.disabled, "disabled", ""),
        (counts.blocked, "blocked", "bold red"),
        (counts.troubled, "failing to schedule", "bold red"),
    )
    parts = [Text(counted(counts.manifests, "manifest"))]
    parts += [Text(f"{number} {word}", style=style) for number, word, style in others if number]
    letters = counted(counts.dead_letters, "open dead letter")
    parts.append(Text(letters, style="bold red" if counts.dead_letters else ""))
    waiting = sum((Counter(group.waiting) for group in overview.groups), Counter[str]())
    if waiting:
        reasons = counts_text(dict(sorted(waiting.items())))
        parts.append(Text(f"waiting: {reasons}", style="yellow"))
    return Text(" · ").join(parts)


def _groups(groups: Sequence[GroupRow], width: int) -> Iterator[Text]:
    """Draw the groups, the busiest first."""
    for row in sorted(groups, key=lambda row: (-row.active - sum(row.waiting.values()), row.name)):
        cap = "no limit" if row.max_active is None else f"of {row.max_active}"
        line = Text.assemble(f"{row.name.ljust(width)}  {row.active:>6} {cap:<8} ")
        if row.max_active:
            line.append(meter(row.active / row.max_active), style="cyan")
        else:
            line.append(" " * (_METER + 2))
        if not row.enabled:
            line.append("  disabled", style="yellow")
        if row.waiting:
            line.append(f"  waiting: {counts_text(row.waiting)}", style="yellow")
        if row.dead_letters:
            line.append(f"  {counted(row.dead_letters, 'dead letter')}", style="bold red")
        yield line


def meter(part: float) -> str:
    """Draw a part of the whole as a bar."""
    full = round(max(0.0, min(1.0, part)) * _METER)
    return f"[{'#' * full}{'.' * (_METER - full)}]"


def _runs(state: State) -> Iterator[Text]:
    width = min(40, max((len(run.manifest or run.job) for run in state.runs), default=0))
    for run in state.runs:
        name = Text(printable(run.manifest or run.job).ljust(width))
        name.truncate(width, overflow="ellipsis")
        age = age_text(run.started_at or run.created_at, state.overview.now)
        line = Text.assemble(name, f"  {age:>6}  ")
        if run.percent is not None:
            line.append(f"{meter(run.percent / 100)} {run.percent:3.0f} %  ", style="cyan")
        if run.attempt > 1:
            line.append(f"attempt {run.attempt}  ", style="yellow")
        words = filter(None, (run.message, f"on {run.worker}" if run.worker else ""))
        line.append(printable(" ".join(words)))
        yield line


def _coming(overview: Overview) -> Iterator[Text]:
    now = overview.now
    for row in overview.coming:
        when = "now" if row.fires_at <= now else f"in {age_text(now, row.fires_at)}"
        yield Text.assemble(f"{when:>10}  ", printable(row.external_id), (f"  {row.job}", "dim"))


def _failures(overview: Overview) -> Iterator[Text]:
    for row in overview.failures:
        message = first_line(row.failure_message, 1000)
        words = printable(f"{', '.join(row.jobs)}: {row.failure_kind}: {message}")
        yield Text.assemble((f"{row.letters:>5}  ", "bold red"), words)
