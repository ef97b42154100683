"""`headway events`: past events, and new ones as they happen."""

import asyncio
import contextlib
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click
import msgspec
from headway_contract.http import API
from headway_dispatcher.public import HistoryEvent
from headway_errors import Unavailable
from headway_service_kit.process import run as run_program
from headway_service_kit.process import stop_on_signals
from msgspec import Struct

from headway_cli.serve.names import filters, work_filter
from headway_cli.serve.session import Query, Session, asking
from headway_cli.terminal import options
from headway_cli.terminal.output import printable

if TYPE_CHECKING:
    from headway.client.http_control import HttpControl

_SHOWN_FIELDS = ("job", "manifest", "outcome", "attempt", "cause", "reason", "host")
_RECONNECT_SECONDS = 1.0
_PAGE = 500


class EventPage(Struct, frozen=True, kw_only=True):
    """A page of events, the newest first."""

    items: list[HistoryEvent]
    next: str | None = None


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Follow new events, until Ctrl-C.")
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="Only these, as in run.completed or 'run.*'; may be repeated.",
)
@filters
@work_filter
@click.option("--run", callback=options.identity, metavar="ID", help="Only of this run.")
@click.option(
    "-n",
    "count",
    type=click.IntRange(0, 100_000),
    default=20,
    show_default=True,
    help="How many past events.",
)
@options.since_option
@asking
def events(
    session: Session,
    follow: bool,
    types: tuple[str, ...],
    count: int,
    since: datetime | None,
    **given: str | UUID | None,
) -> None:
    """Show past events, or follow new ones.

    The events are those of the dispatcher's history: work accepted, orders, reports of workers
    (accepted, or refused with the reason), retries and settlements. --json prints one document a
    line.
    """
    query: Query = [("type", name) for name in types]
    query += [(name, str(value)) for name, value in given.items() if value is not None]
    past = query if since is None else [*query, ("since", since.isoformat())]
    address = session.address()

    # Not above: loading it takes as long as a short command.
    from headway.client.http_control import HttpControl  # noqa: PLC0415

    async def show() -> None:
        stop = stop_on_signals() if follow else None
        async with HttpControl(address.url, token=address.token) as control:
            page = await _read_page(control, [("limit", "1")])
            newest = page.items[0].number if page.items else 0
            found = await _read_past(control, past, count)
            _print((event for event in reversed(found) if event.number <= newest), session.as_json)
            if stop is not None:
                await _follow(control, query, str(newest), stop, session.as_json)

    run_program(show())


async def _read_past(control: "HttpControl", query: Query, count: int) -> list[HistoryEvent]:
    """Read the newest events that match, the newest first."""
    found: list[HistoryEvent] = []
    cursor: Query = []
    while len(found) < count:
        limit = ("limit", str(min(_PAGE, count - len(found))))
        page = await _read_page(control, [*query, limit, *cursor])
        found += page.items
        if page.next is None:
            break
        cursor = [("cursor", page.next)]
    return found


async def _read_page(control: "HttpControl", query: Query) -> EventPage:
    body = await control.call("GET", f"{API}/events", query=query)
    return msgspec.json.decode(body, type=EventPage)


async def _follow(
    control: "HttpControl", query: Query, after: str, stop: asyncio.Event, as_json: bool
) -> None:
    """Print new events until a signal comes."""
    reading = asyncio.create_task(_read_stream(control, query, after, as_json))
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading


async def _read_stream(control: "HttpControl", query: Query, after: str, as_json: bool) -> None:
    """Print new events; after a lost connection continue behind the last one."""
    seen: set[str] = set()
    while True:
        try:
            async for identity, data in control.follow(f"{API}/events/stream", query, after=after):
                event = msgspec.json.decode(data, type=HistoryEvent)
                if event.id not in seen:
                    _print([event], as_json)
                seen.add(event.id)
                if identity not in ("", after):
                    after, seen = identity, {event.id}
        except Unavailable as error:
            click.echo(f"headway: {error}; trying again", err=True)
        await asyncio.sleep(_RECONNECT_SECONDS)


def _print(found: Iterable[HistoryEvent], as_json: bool) -> None:
    for event in found:
        click.echo(msgspec.json.encode(event) if as_json else printable(event_text(event)))
    sys.stdout.flush()


def event_text(event: HistoryEvent) -> str:
    """Describe an event in one line."""
    name = event.type.removeprefix("headway.").rpartition(".v")[0] or event.type
    ids = [f"{kind} {id_}" for kind, id_ in (("run", event.run), ("work", event.work)) if id_]
    data: dict[str, Any] = event.data if isinstance(event.data, dict) else {}
    values = [f"{key}={data[key]}" for key in _SHOWN_FIELDS if data.get(key) not in (None, "")]
    failure = data.get("failure")
    if isinstance(failure, dict):
        values.append(f"{failure.get('kind')}: {failure.get('message')}")
    refused = [] if event.accepted else [f"REFUSED: {event.refusal}"]
    at = event.recorded_at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return "  ".join([at, name.ljust(19), *ids, f"by {event.source}", *values, *refused])
