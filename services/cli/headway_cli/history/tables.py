"""`headway history export` and `headway rebuild`."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import click
import msgspec
from headway_dispatcher.public import Rebuilt
from headway_dispatcher.public import export as read_history
from headway_dispatcher.public import rebuild as rebuild_tables
from headway_postgres_kit import Database

from headway_cli.serve.servers import Tables, reading_tables
from headway_cli.terminal import options
from headway_cli.terminal.interaction import confirm, progressing, yes_option
from headway_cli.terminal.output import counted, json_option, print_answer

UNKNOWN_ROWS = 1
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def history() -> None:
    """Export history from the database."""


@history.command()
@options.since_option
@options.until_option
@click.option("-o", "--output", type=_FILE, help="File to write, instead of standard output.")
@reading_tables
def export(
    tables: Tables, since: datetime | None, until: datetime | None, output: Path | None
) -> None:
    """Export history as JSON lines, one event each."""

    async def write(database: Database) -> int:
        written = 0
        with nullcontext(sys.stdout.buffer) if output is None else output.open("wb") as file:
            async for page in read_history(database, since=since, until=until):
                file.write(b"".join(msgspec.json.encode(event) + b"\n" for event in page))
                written += len(page)
                advance(written)
            file.flush()
        return written

    # Events on a terminal are progress enough.
    with progressing("exporting events", quiet=output is None and sys.stdout.isatty()) as advance:
        written = tables.read(write)
    click.echo(f"exported {counted(written, 'event')}", err=True)


@click.command()
@options.flag("--delete-unknown", "Delete rows that history does not contain, not only count them.")
@yes_option
@json_option
@reading_tables
def rebuild(tables: Tables, delete_unknown: bool, yes: bool, as_json: bool) -> int:
    """Rebuild the tables from history.

    Stop all services first: the command refuses while any runs. Rows that agree with history are
    not changed, and you can interrupt and repeat it. If no database is named, PostgreSQL is started
    on the data folder meanwhile. The exit code is 1 if rows remain that history does not contain.
    """
    unknown = ", and delete rows that history does not contain" if delete_unknown else ""
    confirm(
        lambda: f"rewrite the tables of {tables.where} where they differ from history{unknown}",
        yes=yes,
    )
    with progressing("rebuilding work", quiet=as_json) as advance:
        rebuilt = tables.read(
            lambda database: rebuild_tables(
                database,
                delete_unknown=delete_unknown,
                on_page=lambda rebuilt: advance(rebuilt.works),
            ),
            stopped=True,
        )
    print_answer(rebuilt, lambda: _lines(rebuilt), as_json=as_json)
    return UNKNOWN_ROWS if rebuilt.left_alone else 0


def _lines(rebuilt: Rebuilt) -> Iterator[str]:
    changes = {"added": rebuilt.added, "changed": rebuilt.changed, "deleted": rebuilt.deleted}
    changes["kept that history does not contain"] = rebuilt.left_alone
    for verb, rows in changes.items():
        yield from (f"{table}: {counted(number, 'row')} {verb}" for table, number in rows.items())
    if rebuilt.leases_made:
        yield f"lease: {counted(rebuilt.leases_made, 'row')} added for runs without one"
    yield f"{counted(rebuilt.works, 'work')} rebuilt from {counted(rebuilt.events, 'event')}"
