"""Rebuild: write the tables anew from history, where they differ from it.

Only while no service runs. Each page of work is compared and written in one transaction, so
whatever breaks it off, it can simply be started again. Rows that history tells nothing of stay,
unless one says that they shall go: should history itself have been lost, all would go with it.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from uuid import UUID

from headway_clock import new_token
from headway_history import Difference, LetterRow, RunRow, WorkRow, WorkRows
from headway_postgres_kit import Connection, Database
from msgspec import UNSET, Struct, structs

from headway_dispatcher.history.pages import FIRST, Gone, Page, read_gone, read_page
from headway_dispatcher.history.verify import differences
from headway_dispatcher.store import projections

# A dispatcher that was heard of so lately may well run still.
_LATELY_SECONDS = 10.0


class ServicesRun(Exception):
    """The tables cannot be written anew while their owners write them, too."""


class Rebuilt(Struct, kw_only=True):
    """What a rebuild did, in rows by table."""

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
    """Make the tables what history says; `delete_unknown` also deletes what it does not know."""
    rebuilt, above = Rebuilt(), FIRST
    while True:
        async with database.transaction() as connection:
            await _refuse_beside_services(connection)
            await connection.execute(projections["lock_tables"])
            page = await read_page(connection, above)
            if page is None:
                return rebuilt
            gone = await read_gone(connection)
            await _write(connection, page, gone, rebuilt, delete_unknown=delete_unknown)
            await connection.execute(projections["look_again"], above, page.up_to)
        rebuilt.works += len(page.works)
        rebuilt.events += page.events
        on_page(rebuilt)
        above = page.up_to


async def _refuse_beside_services(connection: Connection) -> None:
    services = await connection.fetch(projections["services"])
    witnesses = await connection.fetch(projections["witnesses"], _LATELY_SECONDS)
    names = [row["name"] for row in (*services, *witnesses)]
    if names:
        raise ServicesRun(
            f"the tables cannot be rebuilt while services run: stop {', '.join(names)} first"
            + ("" if services else f", or wait: it was heard of within {_LATELY_SECONDS:g} s")
        )


async def _write(
    connection: Connection, page: Page, gone: Gone, rebuilt: Rebuilt, *, delete_unknown: bool
) -> None:
    found = differences(page, gone)
    unknown = [one for one in found if one.kind == "unknown"]
    if delete_unknown:
        await _delete(connection, unknown)
    wanted = {(one.table, one.row): one.kind for one in found if one.kind != "unknown"}
    await _write_works(connection, page, {row for table, row in wanted if table == "work_queue"})
    runs = [run for one in page.expected.values() for run in one.runs.values()]
    written = [run for run in runs if ("metadata", run.run_id) in wanted]
    leased = [run for run in runs if run in written or run.lease_id in page.dead_leases]
    rebuilt.leases_made += await _write_leases(connection, leased)
    await connection.execute(projections["write_runs"], written)
    await connection.execute(projections["open_leases"], list(page.dead_leases))
    letters = [
        _letter(letter, page.found.get(work))
        for work, one in page.expected.items()
        for letter in one.letters.values()
        if ("dead_letter", letter.id) in wanted
    ]
    await connection.execute(projections["write_letters"], letters)
    _count(rebuilt.deleted if delete_unknown else rebuilt.left_alone, unknown)
    for kind, counts in (("missing", rebuilt.added), ("different", rebuilt.changed)):
        for table, number in Counter(
            table for (table, _), one in wanted.items() if one == kind
        ).items():
            counts[table] = counts.get(table, 0) + number


async def _delete(connection: Connection, unknown: Sequence[Difference]) -> None:
    for table, query in (
        ("dead_letter", projections["delete_letters"]),
        ("metadata", projections["delete_runs"]),
        ("work_queue", projections["delete_works"]),
    ):
        rows = [one.row for one in unknown if one.table == table]
        if rows:
            await connection.execute(query, rows)


async def _write_works(connection: Connection, page: Page, rows: set[UUID]) -> None:
    wanted = [_work(page.expected[row]) for row in sorted(rows)]
    if wanted:
        await connection.execute(projections["write_works"], wanted)


async def _write_leases(connection: Connection, runs: Sequence[RunRow]) -> int:
    """Leases that are missing, one for each that runs name; returns how many were."""
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
    )
    return len(rows)


def _work(folded: WorkRows) -> WorkRow:
    assert folded.work is not None  # noqa: S101 - a row that is missing or differs is known
    return folded.work


def _letter(letter: LetterRow, found: WorkRows | None) -> LetterRow:
    """A letter to be written; what history does not tell of it stays as it is."""
    there = None if found is None else found.letters.get(letter.id)
    if letter.edit is not UNSET:
        return letter
    return structs.replace(letter, edit=None if there is None else there.edit)


def _count(counts: dict[str, int], rows: Sequence[Difference]) -> None:
    for one in rows:
        counts[one.table] = counts.get(one.table, 0) + 1
