"""`headway events`: past events, and new ones as they happen."""

import asyncio
import contextlib
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import click
import msgspec
from headway.client.http_control import HttpControl
from headway_contract.http import API
from headway_contract.operations import HistoryEvent
from headway_errors import Unavailable
from headway_service_kit.process import run as run_program
from headway_service_kit.process import stop_on_signals

from headway_cli.serve.lifetime import Stopped, unless_stopped
from headway_cli.serve.names import filters, work_filter
from headway_cli.serve.session import Session, command
from headway_cli.terminal import options
from headway_cli.terminal.output import printable

_SHOWN_FIELDS = ("job", "manifest", "outcome", "attempt", "cause", "reason", "host")
_RECONNECT_SECONDS = 1.0


@command()
@click.option("-f", "--follow", is_flag=True, help="Follow new events, until Ctrl-C.")
@options.repeated(
    "--type", "type", "TYPE", "Only these, as in run.completed or 'run.*'; may be repeated."
)
@filters
@work_filter
@options.id_option("--run", "Only of this run.")
@options.count_option("How many past events.", least=0, most=100_000, usual=20)
@options.since_option
def events(session: Session, follow: bool, most: int, since: datetime | None, **query: Any) -> None:
    """Show past events, or follow new ones.

    The events are those of the dispatcher's history: work accepted, orders, reports of workers
    (accepted, or refused with the reason), retries and settlements. --json prints one document a
    line.
    """
    address = session.address()

    async def show() -> None:
        stop = stop_on_signals() if follow else None
        async with address.control() as control:
            latest = await control.list("/events", {}, HistoryEvent, most=1)
            newest = latest[0].number if latest else 0
            found = await control.list(
                "/events", {**query, "since": since}, HistoryEvent, most=most
            )
            _print((event for event in reversed(found) if event.number <= newest), session.as_json)
            if stop is not None:
                reading = _read_stream(control, query, str(newest), session.as_json)
                with contextlib.suppress(Stopped):
                    await unless_stopped(reading, stop)

    run_program(show())


async def _read_stream(
    control: HttpControl, query: dict[str, Any], after: str, as_json: bool
) -> None:
    """Print new events; after a lost connection continue behind the last one."""
    wanted = [("type", name) for name in query["type"]]
    wanted += [(name, str(query[name])) for name in query if query[name] and name != "type"]
    seen: set[str] = set()
    while True:
        try:
            async for identity, data in control.follow(f"{API}/events/stream", wanted, after=after):
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
