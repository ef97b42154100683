"""`headway events`: what happened, and what happens."""

import asyncio
import contextlib
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec
from headway_contract.routes import API
from headway_dispatcher.history.events import HistoryEvent
from headway_errors import Unavailable
from headway_service_kit.process import run as run_program
from headway_service_kit.process import stop_on_signals
from msgspec import Struct

from headway_cli.terminal import options
from headway_cli.terminal.completion import complete_groups, complete_jobs, complete_manifests
from headway_cli.terminal.connect import Reached, asking
from headway_cli.terminal.tables import printable

if TYPE_CHECKING:
    from headway.client.http_control import HttpControl

_TOLD = ("job", "manifest", "outcome", "attempt", "cause", "reason", "host")
_AGAIN_SECONDS = 1.0
_PAGE = 500

Query = list[tuple[str, str]]


class EventPage(Struct, frozen=True, kw_only=True):
    """A page of events, the newest first."""

    items: list[HistoryEvent]
    next: str | None = None


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="Only these, as in run.completed or 'run.*'; may be given more than once.",
)
@click.option(
    "--manifest",
    metavar="ID",
    help="Only of work of this manifest.",
    shell_complete=complete_manifests,
)
@click.option(
    "--group", metavar="NAME", help="Only of work of this group.", shell_complete=complete_groups
)
@click.option(
    "--job", metavar="NAME", help="Only of work of this job.", shell_complete=complete_jobs
)
@click.option("--work", callback=options.identity, metavar="ID", help="Only of this work.")
@click.option("--run", callback=options.identity, metavar="ID", help="Only of this run.")
@click.option(
    "-n",
    "count",
    type=click.IntRange(0, 100_000),
    default=20,
    show_default=True,
    help="How many of the past.",
)
@options.since_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line.")
@asking
def events(
    reached: Reached,
    follow: bool,
    types: tuple[str, ...],
    count: int,
    since: datetime | None,
    as_json: bool,
    **filters: str | UUID | None,
) -> None:
    """Show what happened, and what happens.

    Every event of the dispatcher as history keeps it: what was taken in, ordered, told by workers
    (accepted, or refused and why), retried and settled.
    """
    asked: Query = [("type", one) for one in types]
    asked += [(name, str(value)) for name, value in filters.items() if value is not None]
    past = [*asked]
    if since is not None:
        past.append(("since", since.isoformat()))
    given = reached.settings()

    # Not above: every other command would wait for it, too.
    from headway.client.http_control import HttpControl  # noqa: PLC0415

    async def show() -> None:
        stop = stop_on_signals() if follow else None
        async with HttpControl(given.url, token=given.token) as control:
            newest = await _newest(control)
            found = await _past(control, past, count)
            _print([one for one in reversed(found) if one.number <= newest], as_json)
            if stop is not None:
                await _follow(control, asked, str(newest), stop, as_json)

    run_program(show())


async def _newest(control: "HttpControl") -> int:
    """The number of the newest event: what is behind it is news."""
    page = await _page(control, [("limit", "1")])
    return page.items[0].number if page.items else 0


async def _past(control: "HttpControl", asked: Query, count: int) -> list[HistoryEvent]:
    """So many of the newest that are asked for, the newest first."""
    found: list[HistoryEvent] = []
    cursor: Query = []
    while len(found) < count:
        limit = ("limit", str(min(_PAGE, count - len(found))))
        page = await _page(control, [*asked, limit, *cursor])
        found += page.items
        if page.next is None:
            break
        cursor = [("cursor", page.next)]
    return found


async def _page(control: "HttpControl", query: Query) -> EventPage:
    body = await control.call("GET", f"{API}/events", query=query)
    return msgspec.json.decode(body, type=EventPage)


async def _follow(
    control: "HttpControl", asked: Query, after: str, stop: asyncio.Event, as_json: bool
) -> None:
    """Print what happens until a signal comes; after a break go on where it was."""
    hearing = asyncio.create_task(_hear(control, asked, after, as_json))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({hearing, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    hearing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await hearing


async def _hear(control: "HttpControl", asked: Query, after: str, as_json: bool) -> None:
    seen: set[str] = set()  # what is heard again after a break
    while True:
        try:
            async for identity, data in control.follow(f"{API}/events/stream", asked, after=after):
                one = msgspec.json.decode(data, type=HistoryEvent)
                if one.id not in seen:
                    _print([one], as_json)
                seen.add(one.id)
                if identity not in ("", after):
                    after, seen = identity, {one.id}
        except Unavailable as error:
            click.echo(f"headway: {error}; trying again", err=True)
        await asyncio.sleep(_AGAIN_SECONDS)


def _print(found: Iterable[HistoryEvent], as_json: bool) -> None:
    for one in found:
        click.echo(msgspec.json.encode(one) if as_json else printable(in_words(one)))
    sys.stdout.flush()


def in_words(one: HistoryEvent) -> str:
    """An event in one line."""
    name = one.type.removeprefix("headway.").rpartition(".v")[0] or one.type
    whom = [f"{kind} {value}" for kind, value in (("run", one.run), ("work", one.work)) if value]
    data: dict[str, Any] = one.data if isinstance(one.data, dict) else {}
    told = [f"{key}={data[key]}" for key in _TOLD if data.get(key) not in (None, "")]
    failure = data.get("failure")
    if isinstance(failure, dict):
        told.append(f"{failure.get('kind')}: {failure.get('message')}")
    refused = [] if one.accepted else [f"REFUSED: {one.refusal}"]
    at = one.recorded_at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return "  ".join([at, name.ljust(19), *whom, f"by {one.source}", *told, *refused])
