"""`headway verify`: every fire time has one decision, and the tables agree with history."""

from datetime import datetime
from typing import Any, Literal

import click
import msgspec
from headway import Client
from headway_contract.manifests import LedgerAnswer
from headway_dispatcher.public import MOST_TOLD, Verified
from headway_dispatcher.public import verify as verify_tables
from headway_history import Difference
from headway_postgres_kit import Database, Queries
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.names import complete_manifests
from headway_cli.serve.servers import Tables
from headway_cli.serve.session import Session, command, read_manifest_time
from headway_cli.terminal import options
from headway_cli.terminal.interaction import progressing
from headway_cli.terminal.output import counted, json_text
from headway_cli.terminal.times import shown

queries = Queries("headway_cli", "sql/forged_work.sql")

DIFFERENCES = 1
# Decisions are deleted at their own pace, so the oldest settled work is left out.
_SHARE_COMPARED = 0.9


class _Retention(Struct, frozen=True, kw_only=True):
    """How long the services keep decisions and settled work."""

    history_days: float = 30.0


@command()
@click.argument("manifest_id", metavar="[ID]", required=False, shell_complete=complete_manifests)
@click.option(
    "--since",
    metavar="TIME",
    help="Check fire times since then; without an offset in the manifest's zone, or UTC.",
)
@click.option(
    "--only",
    type=click.Choice(["ledger", "tables"]),
    help="Only the fire times (needs a scheduler), or only the tables (needs no service).",
)
@options.database_option
@options.wait_option
def verify(
    session: Session,
    manifest_id: str | None,
    since: str | None,
    only: Literal["ledger", "tables"] | None,
    database_url: str | None,
    wait: float,
) -> int:
    """Verify the ledger and the tables; print differences.

    Compares the fire times of manifests with the ledger, the dispatcher's tables with history row
    by row, and its work with the scheduler's decisions, which reveals forged work. The services
    may keep running. The exit code is 1 if there is a difference. For one manifest, or since a
    time, only the ledger is compared.
    """
    tables = Tables(data=session.data, database_url=database_url, wait=wait)
    ledger = None if only == "tables" else _verify_ledger(session, manifest_id, since)
    wanted = only != "ledger" and manifest_id is None and since is None
    verified = None
    if only == "tables" or (wanted and tables.url is not None):
        verified = _verify_tables(tables, quiet=session.as_json)
    document: dict[str, Any] = {} if ledger is None else msgspec.to_builtins(ledger)
    session.print(document | {"tables": verified}, lambda: _lines(ledger, verified))
    if wanted and verified is None:
        click.echo("note: to compare the tables, name the database by --database-url", err=True)
    found = bool(ledger and ledger.gaps) or bool(verified and verified.differing)
    return DIFFERENCES if found else 0


def _verify_ledger(session: Session, manifest_id: str | None, since: str | None) -> LedgerAnswer:
    with progressing("comparing decisions", quiet=session.as_json) as advance:

        async def ask(client: Client) -> LedgerAnswer:
            return await client.ledger(
                manifest_id,
                since=await read_manifest_time(client, manifest_id, since, past=True),
                on_page=lambda page: advance(page.fire_times),
            )

        return session.ask(ask)


def _verify_tables(tables: Tables, *, quiet: bool) -> Verified:
    with progressing("comparing work", quiet=quiet) as advance:

        async def compare(database: Database) -> Verified:
            verified = await verify_tables(database, on_page=lambda page: advance(page.works))
            forged = await _find_forged_work(database)
            verified.differing += len(forged)
            verified.differences += forged
            return verified

        return tables.read(compare)


async def _find_forged_work(database: Database) -> list[Difference]:
    """Find work without a decision of the scheduler, which somebody else must have published."""
    kept = settings.read(_Retention, {}).history_days
    async with database.acquire() as connection:
        rows = await connection.fetch(queries["undecided"], kept * _SHARE_COMPARED, MOST_TOLD)
    return [Difference(table="work_queue", row=row["id"], kind="undecided") for row in rows]


def _lines(ledger: LedgerAnswer | None, verified: Verified | None) -> list[str]:
    lines = []
    if ledger is not None:
        lines += [
            f"{gap.manifest}: {_span(gap.first_due_at, gap.last_due_at)}: {gap.trouble}"
            for gap in ledger.gaps
        ]
        result = counted(len(ledger.gaps), "gap") if ledger.gaps else "no gaps"
        lines.append(
            f"{counted(ledger.manifests, 'manifest')}, {counted(ledger.fire_times, 'decision')} "
            f"compared: {result}"
        )
    if verified is not None:
        lines += [difference_text(difference) for difference in verified.differences]
        result = counted(verified.differing, "difference") if verified.differing else "the same"
        lines.append(
            f"{counted(verified.works, 'work')}, {counted(verified.runs, 'run')} and "
            f"{counted(verified.dead_letters, 'dead letter')} compared with "
            f"{counted(verified.events, 'event')}: {result}"
        )
    return lines


def difference_text(difference: Difference) -> str:
    """Describe a difference in one line."""
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


def _span(first: datetime, last: datetime) -> str:
    return shown(first) if first == last else f"{shown(first)} to {shown(last)}"
