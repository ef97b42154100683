"""The session of a command: the Headway that it asks, and how it prints answers."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click
from click.core import ParameterSource
from headway import Client
from headway.client.http_control import HttpControl
from headway_clock import monotonic, utc_now
from headway_contract.work_queue import WorkAnswer
from headway_errors import NotFound, Unavailable
from headway_service_kit.process import run
from headway_service_kit.settings import lookup
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.running import find_running
from headway_cli.terminal import options, output
from headway_cli.terminal.times import duration_text, has_offset, read_moment

Result = TypeVar("Result")
Item = TypeVar("Item")

NOT_COMPLETED = 1
_POLL_SECONDS = 0.3
_SILENCE_SECONDS = 60.0


class ConsoleAddress(Struct, frozen=True, kw_only=True):
    """The settings of a command that asks a console."""

    url: str
    token: str | None = None

    def control(self) -> HttpControl:
        """Return a connection to the HTTP API."""
        return HttpControl(self.url, token=self.token)


class Session(Struct, frozen=True, kw_only=True):
    """The options of every command that asks a console."""

    data: Path
    url: str | None
    as_json: bool = False

    def ask(self, question: Callable[[Client], Awaitable[Result]]) -> Result:
        """Connect a client, ask, and disconnect."""
        address = self.address()

        async def answer() -> Result:
            async with Client(address.url, token=address.token) as client:
                return await question(client)

        return run(answer())

    def read_list(
        self, path: str, query: Mapping[str, Any] | None = None, *, most: int | None = None
    ) -> list[Any]:
        """Read a list of the API: all of it, or the first `most` items."""
        address = self.address()

        async def read() -> list[Any]:
            async with address.control() as control:
                return await control.list(path, query or {}, dict[str, Any], most=most)

        return run(read())

    def address(self) -> ConsoleAddress:
        """Return the URL and token that were given, or those of the `up` of the data folder."""
        url = self.url or lookup(os.environ, "url")
        if url is not None:
            return settings.read(ConsoleAddress, {"url": url})
        running = find_running(self.data)
        return ConsoleAddress(url=running.url, token=running.token)

    def print(self, answer: object, lines: Callable[[], Iterable[str]]) -> None:
        """Print an answer as JSON, or as lines."""
        output.print_answer(answer, lines, as_json=self.as_json)

    def print_text(self, answer: Any) -> None:
        """Print an answer as JSON, or its text."""
        self.print(answer, lambda: answer.text.splitlines() or [""])

    def print_items(
        self,
        items: Sequence[Item],
        headings: Sequence[str],
        row: Callable[[Item], Sequence[object]],
        *,
        empty: str,
        most: int | None = None,
    ) -> None:
        """Print a list as JSON or as a table; `most` items of it, and whether there are more."""
        shown = items[:most]
        if self.as_json:
            output.print_json(shown)
        elif not items:
            click.echo(empty)
        else:
            output.print_lines(output.window_table(headings, [row(item) for item in shown]))
            if len(items) > len(shown):
                click.echo(f"there are more: use -n, or narrow the filters (shown: {most})")


_url_help = "URL of the console; HEADWAY_TOKEN is the token."
asking = options.collected(
    "session",
    Session,
    options.json_option,
    options.setting("--url", "url", _url_help, metavar="URL"),
    options.data_option("Data folder of a 'headway up', used if no URL is given."),
    options.debug_option,
)
_wait_help = "Wait for the outcome; the exit code is 1 if it failed."
wait_option = options.flag("--wait", _wait_help, "waits")


def command(
    name: str | None = None, *, of: click.Group | None = None
) -> Callable[[options.Command], click.Command]:
    """Make a command, `of` a group or of its own, that gets the options above as `session`."""
    make: Any = click.command if of is None else of.command
    return lambda function: make(name)(asking(function))


def shows_itself(context: click.Context) -> bool:
    """Whether a group of commands runs without one; refuses options in front of a command."""
    if context.invoked_subcommand is None:
        return True
    given = [
        max(parameter.opts, key=len)
        for parameter in context.command.params
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"write {', '.join(given)} behind {context.invoked_subcommand}")
    return False


async def read_manifest_time(
    client: Client, manifest_id: str | None, text: str | None, *, past: bool
) -> datetime | None:
    """Read a time in the zone of a manifest; looks the zone up only if the time needs it."""
    if text is None:
        return None
    zone = "UTC"
    if manifest_id is not None and not has_offset(text):
        zone = (await client.manifest(manifest_id)).status.zone
    return read_moment(text, zone, now=utc_now(), past=past)


def await_outcome(session: Session, work: UUID | None) -> int:
    """Wait, print the outcome, and return the exit code."""
    if work is None:
        click.echo("headway: there is no work to wait for yet; it is queued later", err=True)
        return NOT_COMPLETED
    with output.progressing("waiting", quiet=session.as_json) as advance:
        found = session.ask(lambda client: _wait_until_settled(client, work, advance))
    text = f"work {work}: {(found.status.outcome or '').replace('_', ' ')}"
    completed = found.status.outcome == "completed"
    for last in found.runs[-1:]:
        if last.started_at is not None and last.finished_at is not None:
            text += f" after {duration_text(last.started_at, last.finished_at)}"
        if not completed and last.failure_kind:
            text += f": {last.failure_kind}: {output.first_line(last.failure_message or '', 1000)}"
    session.print(found, lambda: [text])
    return 0 if completed else NOT_COMPLETED


async def _wait_until_settled(client: Client, work: UUID, advance: output.Advance) -> WorkAnswer:
    """Return the work once it is settled; tolerates a dispatcher that restarts."""
    answered_at = monotonic()
    while True:
        try:
            found = await client.work(work)
            status = found.status
            if status.state == "settled":
                return found
            if status.run is None or status.state != "dispatched":
                reason = (status.wait_reason or "").replace("_", " ")
                advance(0, now=f"{status.state}{f' ({reason})' if reason else ''}")
            else:
                run = await client.run(status.run)
                step = run.message or run.status.state.replace("_", " ")
                advance(run.percent or 0, of=None if run.percent is None else 100, now=step)
            answered_at = monotonic()
        except NotFound:
            answered_at = monotonic()
            advance(0, now="on its way")
        except Unavailable:
            if monotonic() - answered_at > _SILENCE_SECONDS:
                raise
            advance(0, now="no answer; trying again")
        await asyncio.sleep(_POLL_SECONDS)
