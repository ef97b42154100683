"""Commands over history: look at it, follow it, export it, and write the tables anew from it."""

import asyncio
import contextlib
import sys
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO
from uuid import UUID

import click
import msgspec
from headway_clock import monotonic, utc_now
from headway_dispatcher import events as dispatcher_events
from headway_dispatcher.events import Filters, HistoryEvent
from headway_dispatcher.rebuild import Rebuilt
from headway_dispatcher.rebuild import rebuild as rebuild_tables
from headway_history.numbers import Numbers
from headway_postgres_kit import Database
from headway_service_kit.process import stop_on_signals

from headway_cli.asking import json_option, print_json
from headway_cli.databases import Tables, looking
from headway_cli.moments import read_moment
from headway_cli.summary import counted

_LOOK_EVERY_SECONDS = 0.25
_TOLD = ("job", "manifest", "outcome", "attempt", "cause", "reason", "host")
LEFT_ALONE = 1


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on with what happens, until Ctrl-C.")
@click.option(
    "--type",
    "types",
    metavar="TYPE",
    multiple=True,
    help="Only these, as in run.completed or 'run.*'; may be given more than once.",
)
@click.option("--job", metavar="NAME", help="Only of work of this job.")
@click.option("--work", type=click.UUID, metavar="ID", help="Only of this work.")
@click.option("--run", type=click.UUID, metavar="ID", help="Only of this run.")
@click.option(
    "-n",
    "count",
    type=click.IntRange(0, 100_000),
    default=20,
    show_default=True,
    help="How many of the past.",
)
@click.option("--since", metavar="TIME", help="Of the past only what came since then; UTC.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line.")
@looking
def events(
    tables: Tables,
    follow: bool,
    types: tuple[str, ...],
    job: str | None,
    work: UUID | None,
    run: UUID | None,
    count: int,
    since: str | None,
    as_json: bool,
) -> None:
    """Show what happened, and what happens.

    Every event of the dispatcher as history keeps it: what was taken in, ordered, told by workers
    (accepted, or refused and why), retried and settled.
    """
    filters = Filters(types=types, job=job, work=work, run=run)
    instant = None if since is None else read_moment(since, "UTC", now=utc_now(), past=True)

    async def show(database: Database) -> None:
        numbers = Numbers(await dispatcher_events.last_number(database))
        past = await dispatcher_events.latest(database, filters, count=count, since=instant)
        _print([one for one in past if one.number <= numbers.settled], as_json)
        if follow:
            await _follow(database, numbers, filters, as_json)

    tables.look(show)


async def _follow(database: Database, numbers: Numbers, filters: Filters, as_json: bool) -> None:
    stop = stop_on_signals()
    while not stop.is_set():
        _print(await dispatcher_events.news(database, numbers, filters, now=monotonic()), as_json)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_EVERY_SECONDS):
                await stop.wait()


def _print(found: list[HistoryEvent], as_json: bool) -> None:
    for one in found:
        click.echo(msgspec.json.encode(one) if as_json else in_words(one))
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


@click.group()
def history() -> None:
    """Take history out of the database."""


@history.command()
@click.option("--since", metavar="TIME", help="From then on; without an offset in UTC.")
@click.option("--until", metavar="TIME", help="Up to then; without an offset in UTC.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Into this file, instead of to standard output.",
)
@looking
def export(tables: Tables, since: str | None, until: str | None, output: Path | None) -> None:
    """Export history as JSON lines, an event each."""
    begins, ends = (
        None if one is None else read_moment(one, "UTC", now=utc_now(), past=True)
        for one in (since, until)
    )

    async def write(database: Database) -> int:
        if output is None:
            return await _export(database, sys.stdout.buffer, begins, ends)
        with output.open("wb") as file:
            return await _export(database, file, begins, ends)

    written = tables.look(write)
    click.echo(f"exported {counted(written, 'event')}", err=True)


async def _export(
    database: Database, file: BinaryIO, since: datetime | None, until: datetime | None
) -> int:
    written = 0
    async for page in dispatcher_events.export(database, since=since, until=until):
        file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in page))
        written += len(page)
    file.flush()
    return written


@click.command()
@click.option(
    "--delete-unknown",
    is_flag=True,
    help="Also delete rows of which history tells nothing, instead of naming how many there are.",
)
@json_option
@looking
def rebuild(tables: Tables, delete_unknown: bool, as_json: bool) -> int:
    """Write the tables anew from history.

    Stop all services first: it refuses while any runs. Rows that are as history says are not
    touched; it may be broken off and started again. Where no database is named, PostgreSQL is
    started on the data folder as long as it takes. The exit code is 1 if rows were left that
    history does not know.
    """

    async def write(database: Database) -> Rebuilt:
        return await rebuild_tables(database, delete_unknown=delete_unknown)

    rebuilt = tables.look_while_stopped(write)
    if as_json:
        print_json(rebuilt)
    else:
        for words, rows in (
            ("added", rebuilt.added),
            ("changed", rebuilt.changed),
            ("deleted", rebuilt.deleted),
            ("left alone, history does not know them", rebuilt.left_alone),
        ):
            for table, number in rows.items():
                click.echo(f"{table}: {counted(number, 'row')} {words}")
        if rebuilt.leases_made:
            click.echo(f"lease: {counted(rebuilt.leases_made, 'row')} made for runs without one")
        click.echo(
            f"{counted(rebuilt.works, 'work')} rebuilt from {counted(rebuilt.events, 'event')}"
        )
    return LEFT_ALONE if rebuilt.left_alone else 0
