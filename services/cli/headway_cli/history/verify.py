"""The proof: every fire time has one decision, and the tables are what history says."""

from datetime import datetime
from typing import Any, Literal

import click
import msgspec
from headway import Client
from headway_contract.scheduling import LedgerAnswer
from headway_dispatcher.history.verify import Verified
from headway_dispatcher.history.verify import verify as verify_tables
from headway_history import Difference
from headway_postgres_kit import Database

from headway_cli.history.forged_work import find_forged_work
from headway_cli.schedules.show import moment_of
from headway_cli.serve.databases import Tables
from headway_cli.terminal import options
from headway_cli.terminal.completion import complete_manifests
from headway_cli.terminal.connect import Reached, asking, json_option, print_json
from headway_cli.terminal.progress import progressing
from headway_cli.terminal.times import shown
from headway_cli.up.summary import counted

FOUND_SOMETHING = 1


@click.command()
@click.argument("manifest_id", metavar="[ID]", required=False, shell_complete=complete_manifests)
@click.option(
    "--since",
    metavar="TIME",
    help="Check what was due since then, instead of all that is kept; without an offset in the "
    "manifest's zone, or UTC.",
)
@click.option(
    "--only",
    type=click.Choice(["ledger", "tables"]),
    help="Only the fire times, which asks a scheduler, or only the tables, which need no service.",
)
@json_option
@options.database_option
@options.wait_option
@asking
def verify(
    reached: Reached,
    manifest_id: str | None,
    since: str | None,
    only: Literal["ledger", "tables"] | None,
    as_json: bool,
    database_url: str | None,
    wait: float,
) -> int:
    """Prove the ledger and the tables right, or tell what is not.

    Compares the times at which manifests should have fired with the ledger, the tables of the
    dispatcher with what history folds to, row by row, and its work with the decisions of the
    scheduler, so that forged work is found; the services may go on meanwhile. Tells every
    difference, and the exit code is 1 if there is any. For one manifest, or since a time, only the
    ledger is compared.
    """
    tables = Tables(data=reached.data, database_url=database_url, wait=wait)
    ledger = None if only == "tables" else _ledger(reached, manifest_id, since, quiet=as_json)
    wanted = only != "ledger" and manifest_id is None and since is None
    verified = None
    if only == "tables" or (wanted and tables.url is not None):
        verified = _tables(tables, quiet=as_json)
    if as_json:
        print_json(_document(ledger, verified))
    else:
        _tell(ledger, verified)
    if wanted and verified is None:
        click.echo("note: the tables are compared if --database-url names the database", err=True)
    found = bool(ledger and ledger.gaps) or bool(verified and verified.differing)
    return FOUND_SOMETHING if found else 0


def _ledger(
    reached: Reached, manifest_id: str | None, since: str | None, *, quiet: bool
) -> LedgerAnswer:
    with progressing("comparing decisions", quiet=quiet) as advance:

        async def ask(client: Client) -> LedgerAnswer:
            instant = await moment_of(client, manifest_id, since, past=True)
            return await client.ledger(
                manifest_id, since=instant, on_page=lambda one: advance(one.fire_times)
            )

        return reached.ask(ask)


def _tables(tables: Tables, *, quiet: bool) -> Verified:
    with progressing("comparing works", quiet=quiet) as advance:

        async def look(database: Database) -> Verified:
            verified = await verify_tables(database, on_page=lambda one: advance(one.works))
            forged = await find_forged_work(database)
            verified.differing += len(forged)
            verified.differences += forged
            return verified

        return tables.look(look)


def _document(ledger: LedgerAnswer | None, verified: Verified | None) -> dict[str, Any]:
    document: dict[str, Any] = {} if ledger is None else msgspec.to_builtins(ledger)
    return document | {"tables": verified}


def _tell(ledger: LedgerAnswer | None, verified: Verified | None) -> None:
    if ledger is not None:
        for gap in ledger.gaps:
            click.echo(f"{gap.manifest}: {_span(gap.first_due_at, gap.last_due_at)}: {gap.trouble}")
        checked = (
            f"{counted(ledger.manifests, 'manifest')}, {counted(ledger.fire_times, 'decision')}"
        )
        result = counted(len(ledger.gaps), "gap") if ledger.gaps else "no gaps"
        click.echo(f"{checked} compared: {result}")
    if verified is not None:
        for one in verified.differences:
            click.echo(in_words(one))
        rows = f"{counted(verified.works, 'work')}, {counted(verified.runs, 'run')} and "
        rows += counted(verified.dead_letters, "dead letter")
        result = counted(verified.differing, "difference") if verified.differing else "the same"
        click.echo(f"{rows} compared with {counted(verified.events, 'event')}: {result}")


def in_words(one: Difference) -> str:
    """A difference in one line."""
    row = f"{one.table} {one.row}"
    if one.kind == "missing":
        return f"{row}: history tells of it, and it is not there"
    if one.kind == "unknown":
        return f"{row}: it is there, and history does not tell of it"
    if one.kind == "undecided":
        return f"{row}: the scheduler has not decided it, so somebody else has published it"
    return f"{row}: {one.column} should be {_value(one.expected)} and is {_value(one.found)}"


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _span(first: datetime, last: datetime) -> str:
    if first == last:
        return shown(first, "UTC")
    return f"{shown(first, 'UTC')} to {shown(last, 'UTC')}"
