"""Commands over history: export it, and write the tables anew from it."""

import sys
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import click
import msgspec
from headway_dispatcher.history import events as dispatcher_events
from headway_dispatcher.history.rebuild import Rebuilt
from headway_dispatcher.history.rebuild import rebuild as rebuild_tables
from headway_postgres_kit import Database

from headway_cli.serve.databases import Tables, looking
from headway_cli.terminal import options
from headway_cli.terminal.confirm import confirm, yes_option
from headway_cli.terminal.connect import json_option, print_json
from headway_cli.terminal.progress import Advance, progressing
from headway_cli.up.summary import counted

LEFT_ALONE = 1


@click.group()
def history() -> None:
    """Take history out of the database."""


@history.command()
@options.since_option
@options.until_option
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Into this file, instead of to standard output.",
)
@looking
def export(
    tables: Tables, since: datetime | None, until: datetime | None, output: Path | None
) -> None:
    """Export history as JSON lines, an event each."""

    async def write(database: Database) -> int:
        if output is None:
            return await _export(database, sys.stdout.buffer, since, until, advance)
        with output.open("wb") as file:
            return await _export(database, file, since, until, advance)

    # What goes to a terminal is its own progress.
    with progressing("exporting events", quiet=output is None and sys.stdout.isatty()) as advance:
        written = tables.look(write)
    click.echo(f"exported {counted(written, 'event')}", err=True)


async def _export(
    database: Database,
    file: BinaryIO,
    since: datetime | None,
    until: datetime | None,
    advance: Advance,
) -> int:
    written = 0
    async for page in dispatcher_events.export(database, since=since, until=until):
        file.write(b"".join(msgspec.json.encode(one) + b"\n" for one in page))
        written += len(page)
        advance(written)
    file.flush()
    return written


@click.command()
@click.option(
    "--delete-unknown",
    is_flag=True,
    help="Also delete rows of which history tells nothing, instead of naming how many there are.",
)
@yes_option
@json_option
@looking
def rebuild(tables: Tables, delete_unknown: bool, yes: bool, as_json: bool) -> int:
    """Write the tables anew from history.

    Stop all services first: it refuses while any runs. Rows that are as history says are not
    touched; it may be broken off and started again. Where no database is named, PostgreSQL is
    started on the data folder as long as it takes. The exit code is 1 if rows were left that
    history does not know.
    """
    unknown = ", and delete what history does not know" if delete_unknown else ""
    confirm(
        lambda: f"write the tables of {tables.where} anew where they differ from history{unknown}",
        yes=yes,
    )
    with progressing("rebuilding works", quiet=as_json) as advance:

        async def write(database: Database) -> Rebuilt:
            return await rebuild_tables(
                database,
                delete_unknown=delete_unknown,
                on_page=lambda one: advance(one.works),
            )

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
