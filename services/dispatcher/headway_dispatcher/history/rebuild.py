"""Rebuild: rewrite the rows of the tables that differ from history.

No service may run meanwhile. Each page of work is compared and written in one transaction, so an
interrupted rebuild can be started again. Rows that are not in history stay, unless the caller wants
them deleted: if history itself was lost, all rows would be deleted.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from headway_clock import new_token
from headway_history import LetterRow, RunRow, WorkRows
from headway_postgres_kit import Connection, Database
from msgspec import UNSET, Struct, structs

from headway_dispatcher.history.pages import FIRST, Gone, Page, read_gone, read_page
from headway_dispatcher.history.verify import differences
from headway_dispatcher.store import HISTORY, projections

# A dispatcher with a heartbeat of this age may still run.
_RECENT_SECONDS = 10.0


class ServicesRun(Exception):
    """The tables cannot be rebuilt while services write them."""


class Rebuilt(Struct, kw_only=True):
    """The result of a rebuild: rows by table."""

    works: int = 0
    events: int = 0
    added: dict[str, int] = {}
    changed: dict[str, int] = {}
    deleted: dict[str, int] = {}
    left_alone: dict[str, int] = {}
    leases_made: int = 0


async def rebuild(
    database: Database,
    *,
    delete_unknown: bool = False,
    on_page: Callable[[Rebuilt], None] = lambda _: None,
) -> Rebuilt:
    """Rebuild the tables from history; `delete_unknown` also deletes rows not in history."""
    rebuilt, above = Rebuilt(), FIRST
    async with database.snapshot() as history:
        await _refuse_beside_services(history)
        packed = await HISTORY.packed(history)
        while True:
            async with database.transaction() as connection:
                await connection.execute(projections["lock_tables"])
                # With the lock: the stream lacks the packed events of a service that just began.
                await _refuse_beside_services(connection)
                page = await read_page(connection, above, packed)
                if page is None:
                    return rebuilt
                await page.fold()
                gone = await read_gone(connection)
                await _write(connection, page, gone, rebuilt, delete_unknown=delete_unknown)
                await connection.execute(projections["look_again"], above, page.up_to)
            rebuilt.works += len(page.works)
            rebuilt.events += sum(map(len, page.events.values()))
            on_page(rebuilt)
            above = page.up_to


async def _refuse_beside_services(connection: Connection) -> None:
    services = await connection.fetch(projections["services"])
    witnesses = await connection.fetch(projections["witnesses"], _RECENT_SECONDS)
    names = [row["name"] for row in (*services, *witnesses)]
    if names:
        raise ServicesRun(
            f"the tables cannot be rebuilt while services run: stop {', '.join(names)} first"
            + ("" if services else f", or wait {_RECENT_SECONDS:g} s after its last heartbeat")
        )


async def _write(
    connection: Connection, page: Page, gone: Gone, rebuilt: Rebuilt, *, delete_unknown: bool
) -> None:
    found = differences(page, gone)
    unknown = [(row.table, row.row) for row in found if row.kind == "unknown"]
    if delete_unknown:
        await _delete(connection, unknown)
    wanted = {(row.table, row.row): row.kind for row in found if row.kind != "unknown"}
    works = [page.expected[row].work for table, row in sorted(wanted) if table == "work_queue"]
    await connection.execute(projections["write_works"], works)
    runs = [run for rows in page.expected.values() for run in rows.runs.values()]
    written = [run for run in runs if ("metadata", run.run_id) in wanted]
    leased = [run for run in runs if run in written or run.lease_id in page.dead_leases]
    rebuilt.leases_made += await _write_leases(connection, leased)
    await connection.execute(projections["write_runs"], written)
    await connection.execute(projections["open_leases"], list(page.dead_leases))
    letters = [
        _letter(letter, page.found.get(work))
        for work, rows in page.expected.items()
        for letter in rows.letters.values()
        if ("dead_letter", letter.id) in wanted
    ]
    await connection.execute(projections["write_letters"], letters)
    _count(rebuilt.deleted if delete_unknown else rebuilt.left_alone, unknown)
    _count(rebuilt.added, [row for row, kind in wanted.items() if kind == "missing"])
    _count(rebuilt.changed, [row for row, kind in wanted.items() if kind == "different"])


async def _delete(connection: Connection, unknown: Sequence[tuple[str, UUID]]) -> None:
    for table, query in (
        ("dead_letter", projections["delete_letters"]),
        ("metadata", projections["delete_runs"]),
        ("work_queue", projections["delete_works"]),
    ):
        rows = [row for in_table, row in unknown if in_table == table]
        if rows:
            await connection.execute(query, rows)


async def _write_leases(connection: Connection, runs: Sequence[RunRow]) -> int:
    """Insert missing leases of runs; returns their number."""
    by_lease: dict[UUID, list[RunRow]] = {}
    for run in runs:
        by_lease.setdefault(run.lease_id, []).append(run)
    if not by_lease:
        return 0
    rows = await connection.fetch(
        projections["write_leases"],
        list(by_lease),
        [new_token() for _ in by_lease],
        [held[0].job for held in by_lease.values()],
        [held[0].created_at for held in by_lease.values()],
        [all(run.finished_at is not None for run in held) for held in by_lease.values()],
        [sorted({run.group_name for run in held}) for held in by_lease.values()],
    )
    return len(rows)


def _letter(letter: LetterRow, found: WorkRows | None) -> LetterRow:
    """Return a letter to be written; an edit that is not in history stays as it is."""
    if letter.edit is not UNSET:
        return letter
    stored = None if found is None else found.letters.get(letter.id)
    return structs.replace(letter, edit=None if stored is None else stored.edit)


def _count(counts: dict[str, int], rows: Sequence[tuple[str, UUID]]) -> None:
    for table, number in Counter(table for table, _ in rows).items():
        counts[table] = counts.get(table, 0) + number
