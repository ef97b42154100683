"""`headway logs`: the log of a run, and new lines and progress while it runs."""

import asyncio
import contextlib
import sys
from typing import Any

import click
from headway import Client
from headway.client.reads import Id
from headway_contract.work_queue import RunLogAnswer
from headway_contract.worker_protocol import LINES_LIMIT, LOG_BYTES_LIMIT, LogLine
from headway_errors import NotFound, Unavailable
from headway_service_kit.process import run as run_program
from headway_service_kit.process import stop_on_signals
from headway_tracing.log import EXCEPTION
from msgspec import structs

from headway_cli.serve.lifetime import Stopped, unless_stopped
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import counted, json_text, print_json, print_lines

_POLL_SECONDS = 0.5
_LIVE = ("pending", "in_progress")
# Reports may be stored out of order: lines so far behind the last one are read again.
_OVERLAP = 100


@command()
@click.argument("identity", metavar="ID", callback=options.identity)
@click.option("-f", "--follow", is_flag=True, help="Follow new lines and progress until its end.")
def logs(session: Session, identity: Id, follow: bool) -> None:
    """Print the log of a run, or follow it.

    ID is that of a run, or of work, whose latest run is meant. The lines of 'ctx.log' are kept with
    the run. Steps of 'ctx.progress' are seen only live: of them the latest is kept. With --follow,
    --json prints one document a line.
    """
    address = session.address()

    async def show() -> None:
        stop = stop_on_signals() if follow else None
        async with Client(address.url, token=address.token) as client:
            printer = _Printer(as_json=session.as_json)
            if stop is None:
                run = await _run_of(client, identity, waits=False)
                if session.as_json:
                    print_json(await printer.read_new(client, run))
                else:
                    printer.print_end(await printer.print_new(client, run))
                return
            with contextlib.suppress(Stopped):
                await unless_stopped(_follow(client, identity, printer), stop)

    run_program(show())


async def _run_of(client: Client, identity: Id, *, waits: bool) -> Id:
    """Return the run of an id, or the latest run of work; raises `NotFound` if there is none."""
    try:
        return (await client.log(identity)).run
    except NotFound as unknown:
        while True:
            try:
                found = await client.work(identity)
            except NotFound:
                raise unknown from None
            if found.runs:
                return found.runs[0].run
            if not waits or found.status.state == "settled":
                hint = "" if found.status.state == "settled" else ": add --follow to wait for one"
                raise NotFound(f"work {found.status.work} has no run{hint}") from None
            await asyncio.sleep(_POLL_SECONDS)


async def _follow(client: Client, identity: Id, printer: "_Printer") -> None:
    """Print lines and progress until the run ends; a console that is away is asked again."""
    run, has_ended = await _run_of(client, identity, waits=True), False
    while True:
        try:
            found = await printer.print_new(client, run)
            # Its last reports may be stored a moment after its end.
            if has_ended:
                printer.print_end(found)
                return
            has_ended = found.state not in _LIVE
        except Unavailable as error:
            click.echo(f"headway: {error}; trying again", err=True)
        await asyncio.sleep(_POLL_SECONDS)


class _Printer:
    """Prints each line once, and each progress that differs from the last one."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._seen: set[int] = set()
        self._progress: tuple[float | None, str | None] = (None, None)

    async def print_new(self, client: Client, run: Id) -> RunLogAnswer:
        """Print new lines and progress; return the answer with the new lines."""
        found = await self.read_new(client, run)
        for line in found.lines:
            self._print({"line": line}, *log_lines(line))
        if (found.percent, found.message) not in ((None, None), self._progress):
            self._progress = (found.percent, found.message)
            percent = "" if found.percent is None else f"{found.percent:g} %"
            step = {"percent": found.percent, "message": found.message}
            words = filter(None, ("progress:", percent, found.message))
            self._print({"progress": step}, " ".join(words))
        sys.stdout.flush()
        return found

    def print_end(self, found: RunLogAnswer) -> None:
        """Print how the run stands, and on standard error also what its log lacks."""
        if self._as_json:
            self._print({"state": found.state, "dropped": found.dropped})
        notes = [f"run {found.run}: {found.state.replace('_', ' ')}"]
        if found.state in _LIVE:
            notes.append("--follow prints new lines")
        if not self._seen:
            notes.append("no log lines ('ctx.log.info(...)' in the job writes them)")
        if found.dropped:
            kept = f"a run keeps at most {LINES_LIMIT:,}, of {LOG_BYTES_LIMIT // 1024} KiB"
            notes.append(f"{counted(found.dropped, 'line')} dropped: {kept}")
        if not self._as_json:
            click.echo("; ".join(notes), err=True)

    async def read_new(self, client: Client, run: Id) -> RunLogAnswer:
        """Read all lines that were not printed yet, in pages."""
        new: list[LogLine] = []
        after = max(0, max(self._seen, default=0) - _OVERLAP)
        while True:
            page = await client.log(run, after=after)
            new += [line for line in page.lines if line.number not in self._seen]
            self._seen.update(line.number for line in page.lines)
            if not page.lines:
                break
            after = page.lines[-1].number
        return structs.replace(page, lines=new)

    def _print_notes(self, found: RunLogAnswer, *, ended: bool) -> None:
        """Print on standard error how the run stands, and what its log lacks."""
        notes = [f"run {found.run}: {found.state.replace('_', ' ')}"]
        if not ended:
            notes.append("--follow prints new lines")
        if not self._seen:
            notes.append("no log lines ('ctx.log.info(...)' in the job writes them)")
        if found.dropped:
            kept = f"a run keeps at most {LINES_LIMIT:,}, of 256 KiB"
            notes.append(f"{counted(found.dropped, 'line')} dropped: {kept}")
        click.echo("; ".join(notes), err=True)

    def _print(self, document: dict[str, Any], *lines: str) -> None:
        if self._as_json:
            click.echo(json_text(document))
        else:
            print_lines(lines)


def log_lines(entry: LogLine) -> list[str]:
    """Write a line of a log with its time in UTC, and a traceback below it."""
    fields = dict(entry.fields)
    stack = str(fields.pop(EXCEPTION, ""))
    values = [f"{name}={json_text(value)}" for name, value in fields.items()]
    at = f"{entry.at:%H:%M:%S.%f}"[:-3]
    line = " ".join((at, entry.level, entry.message, *values))
    return [line, *(f"    {row}" for row in stack.rstrip().splitlines())]
