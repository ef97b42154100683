"""`headway history export`, `headway rebuild` and `headway verify`."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from headway import Client
from headway_contract.manifests import LedgerAnswer
from headway_dispatcher.public import MOST_LISTED, Rebuilt, Verified
from headway_dispatcher.public import export as read_history
from headway_dispatcher.public import rebuild as rebuild_tables
from headway_dispatcher.public import verify as verify_tables
from headway_history import Difference
from headway_postgres_kit import Database, Queries
from headway_postgres_kit.database import describe_url
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.servers import Tables, reading_tables
from headway_cli.serve.session import Session, command, read_manifest_time
from headway_cli.terminal import options
from headway_cli.terminal.output import confirm, counted, json_text, print_answer, progressing
from headway_cli.terminal.times import shown

queries = Queries("headway_cli", "sql/forged_work.sql")

UNKNOWN_ROWS = DIFFERENCES = 1
# Decisions are deleted at their own pace, so the oldest settled work is left out.
_SHARE_COMPARED = 0.9
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
@options.yes_option
@options.json_option
@reading_tables
def rebuild(tables: Tables, delete_unknown: bool, yes: bool, as_json: bool) -> int:
    """Rebuild the tables from history.

    Stop all services first: the command refuses while any runs. Rows that agree with history are
    not changed, and you can interrupt and repeat it. If no database is named, PostgreSQL is started
    on the data folder meanwhile. The exit code is 1 if rows remain that history does not contain.
    """
    where = tables.data if tables.url is None else describe_url(tables.url)
    question = f"rewrite the tables of {where} where they differ from history"
    if delete_unknown:
        question += ", and delete rows that history does not contain"
    confirm(lambda: question, yes=yes)
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
    works = counted(rebuilt.works, "piece of work")
    yield f"{works} rebuilt from {counted(rebuilt.events, 'event')}"


class _Retention(Struct, frozen=True, kw_only=True):
    """How long the services keep decisions and settled work."""

    history_days: float = 30.0


@command()
@click.argument("manifest_id", metavar="[ID]", required=False)
@options.text("--since", "TIME", "Check fire times since then, by default in the manifest's zone.")
@options.choice("--only", ("ledger", "tables"), "Only the fire times, or only the tables.")
@options.database_option
@options.wait_option
def verify(
    session: Session, manifest_id: str | None, since: str | None, only: str | None, **server: Any
) -> int:
    """Verify the ledger and the tables; print differences.

    Compares the fire times of manifests with the ledger, the dispatcher's tables with history row
    by row, and its work with the scheduler's decisions, which reveals forged work. The services
    may keep running. The exit code is 1 if there is a difference. For one manifest, or since a
    time, only the ledger is compared; --only tables needs no running service.
    """
    tables = Tables(data=session.data, **server)
    ledger = verified = None

    async def ask(client: Client) -> LedgerAnswer:
        at = await read_manifest_time(client, manifest_id, since, past=True)
        return await client.ledger(
            manifest_id, since=at, on_page=lambda page: advance(page.fire_times)
        )

    async def compare(database: Database) -> Verified:
        verified = await verify_tables(database, on_page=lambda page: advance(page.works))
        # Work without a decision of the scheduler was published by another client.
        kept = settings.read(_Retention, {}).history_days
        async with database.acquire() as connection:
            rows = await connection.fetch(queries["undecided"], kept * _SHARE_COMPARED, MOST_LISTED)
        verified.differing += len(rows)
        verified.differences += [
            Difference(table="work_queue", row=row["id"], kind="undecided") for row in rows
        ]
        return verified

    if only != "tables":
        with progressing("comparing decisions", quiet=session.as_json) as advance:
            ledger = session.ask(ask)
    wanted = only != "ledger" and manifest_id is None and since is None
    if only == "tables" or (wanted and tables.url is not None):
        with progressing("comparing work", quiet=session.as_json) as advance:
            verified = tables.read(compare)
    document: dict[str, Any] = {} if ledger is None else msgspec.to_builtins(ledger)
    session.print(document | {"tables": verified}, lambda: _verified_lines(ledger, verified))
    if wanted and verified is None:
        click.echo("note: to compare the tables, name the database by --database-url", err=True)
    found = bool(ledger and ledger.gaps) or bool(verified and verified.differing)
    return DIFFERENCES if found else 0


def _verified_lines(ledger: LedgerAnswer | None, verified: Verified | None) -> Iterator[str]:
    if ledger is not None:
        for gap in ledger.gaps:
            last = "" if gap.first_due_at == gap.last_due_at else f" to {shown(gap.last_due_at)}"
            yield f"{gap.manifest}: {shown(gap.first_due_at)}{last}: {gap.trouble}"
        yield (
            f"{counted(ledger.manifests, 'manifest')}, {counted(ledger.fire_times, 'decision')} "
            f"compared: {counted(len(ledger.gaps), 'gap') if ledger.gaps else 'no gaps'}"
        )
    if verified is not None:
        yield from map(_difference, verified.differences)
        result = counted(verified.differing, "difference") if verified.differing else "the same"
        yield (
            f"{counted(verified.works, 'piece of work')}, {counted(verified.runs, 'run')} and "
            f"{counted(verified.dead_letters, 'dead letter')} compared with "
            f"{counted(verified.events, 'event')}: {result}"
        )


def _difference(difference: Difference) -> str:
    row = f"{difference.table} {difference.row}"
    match difference.kind:
        case "missing":
            return f"{row}: it is in history, but not in the table"
        case "unknown":
            return f"{row}: it is in the table, but not in history"
        case "undecided":
            return f"{row}: the scheduler did not decide it, so it was published by another client"
    expected, found = json_text(difference.expected), json_text(difference.found)
    return f"{row}: {difference.column} should be {expected} and is {found}"
