"""Pages of history: read with the tables that follow from it, or exported."""

from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
from headway_history import LetterRow, RunRow, StoredEvent, WorkRow, WorkRows, fold
from headway_history.events import FORGOTTEN, SNAPSHOT, Forgotten, open_data, unpack
from headway_history.rows import Absence, LetterRun
from headway_postgres_kit import Connection, Database
from msgspec import Struct

from headway_dispatcher.store import HISTORY, projections
from headway_dispatcher.store import events as event_queries

FIRST, LAST = UUID(int=0), UUID(int=(1 << 128) - 1)
_WORKS = 1000
_EVENTS = 20_000
_EXPORTED = 1000

_PRUNED, _CONFIRMED = "headway.manifest.pruned.v1", "headway.prune.confirmed.v1"


class Page(Struct, frozen=True, kw_only=True):
    """Work between two ids, as history has it and as the tables have it."""

    up_to: UUID
    events: int
    expected: dict[UUID, WorkRows]
    found: dict[UUID, WorkRows]
    # Leases of live runs that are missing (`None`), or have ended at this time.
    dead_leases: dict[UUID, datetime | None]

    @property
    def works(self) -> list[UUID]:
        """All work of history and of the tables, by id."""
        return sorted(self.expected.keys() | self.found.keys())


class Gone(Struct, frozen=True, kw_only=True):
    """Deletions that history records: prunes of manifests, and the clean-up of old work."""

    pruned: set[UUID]
    confirmed: set[UUID]
    settled_before: datetime | None
    resolved_before: datetime | None

    def without_purged(self, expected: WorkRows, existing: Collection[UUID]) -> WorkRows:
        """Drop letters that were resolved long ago and do not exist any more."""
        mark = self.resolved_before
        if mark is None or not expected.letters:
            return expected
        kept = {
            key: letter
            for key, letter in expected.letters.items()
            if key in existing or letter.resolved_at is None or letter.resolved_at >= mark
        }
        return WorkRows(work=expected.work, runs=expected.runs, letters=kept)

    def absence(self, expected: WorkRows, found: WorkRows) -> Absence:
        """Return whether the rows of a piece of work may, must or must not be absent."""
        work = expected.work
        if work is None:
            return "must_not"
        if work.manifest_id in self.confirmed:
            return "must"
        if work.manifest_id in self.pruned:
            return "may"
        mark = self.settled_before
        if mark is None or not found.is_empty:
            return "must_not"
        # The clean-up deletes work that was settled, and whose letters were resolved, long ago.
        ends = [work.settled_at, *(letter.resolved_at for letter in expected.letters.values())]
        return "may" if all(end is not None and end < mark for end in ends) else "must_not"


async def read_gone(connection: Connection) -> Gone:
    """Read the deletions, as far back as history reaches."""
    events = await HISTORY.of_no_work(connection, [_PRUNED, _CONFIRMED, FORGOTTEN])
    read = [(event.type, open_data(event)) for event in events]
    marks = [data for _, data in read if isinstance(data, Forgotten)]
    settled = [mark.settled_before for mark in marks if mark.settled_before]
    resolved = [mark.resolved_before for mark in marks if mark.resolved_before]
    return Gone(
        pruned={data.manifest_id for type_, data in read if type_ == _PRUNED},
        confirmed={data.manifest_id for type_, data in read if type_ == _CONFIRMED},
        settled_before=max(settled, default=None),
        resolved_before=max(resolved, default=None),
    )


async def read_page(connection: Connection, above: UUID) -> Page | None:
    """Read the next page of work above an id; `None` if there is no more."""
    if above == LAST:
        return None
    end = await connection.fetchval(projections["page_end"], above, _WORKS, _EVENTS)
    up_to: UUID = LAST if end is None else end
    events = await HISTORY.of_works(connection, above, up_to)
    by_work = await _with_lease_events(connection, events)
    found = await _find(connection, above, up_to)
    dead = await connection.fetch(projections["dead_leases"], above, up_to)
    return Page(
        up_to=up_to,
        events=sum(map(len, by_work.values())),
        expected={work: fold(own) for work, own in by_work.items()},
        found=found,
        dead_leases={row["id"]: row["ended_at"] for row in dead},
    )


async def fold_works(connection: Connection, events: Sequence[StoredEvent]) -> dict[UUID, WorkRows]:
    """Fold the events of several works, sorted by work."""
    by_work = await _with_lease_events(connection, events)
    return {work: fold(own) for work, own in by_work.items()}


async def _with_lease_events(
    connection: Connection, events: Sequence[StoredEvent]
) -> dict[UUID, list[StoredEvent]]:
    """Return the events of each work, and those of the leases of its runs.

    A lease with several runs is claimed once for all of them, and their ends may be packed. Those
    events have no single work; each run gets its part of them.
    """
    by_work = {
        work: list(own) for work, own in groupby(events, attrgetter("work")) if work is not None
    }
    runs = {work: _runs_and_leases(own) for work, own in by_work.items()}
    # By lease, or by run for its part of a packed event.
    shared: dict[UUID | None, list[StoredEvent]] = {}
    wanted = {lease for found in runs.values() for lease in found.values()}
    for event in await HISTORY.of_leases(connection, wanted):
        for part in unpack(event):
            shared.setdefault(part.run or part.lease, []).append(part)
    for work, own in by_work.items():
        owners = {*runs[work], *runs[work].values()}
        own += [event for owner in owners for event in shared.get(owner, ())]
    return by_work


def _runs_and_leases(events: Sequence[StoredEvent]) -> dict[UUID, UUID]:
    """Return the lease of each run that the events of a piece of work mention."""
    found: dict[UUID, UUID] = {}
    for event in events:
        if event.type == SNAPSHOT:
            found |= {run.run_id: run.lease_id for run in open_data(event).runs}
        elif event.run is not None and event.lease is not None:
            found[event.run] = event.lease
    return found


async def _find(connection: Connection, above: UUID, up_to: UUID) -> dict[UUID, WorkRows]:
    """Read the rows of all work between two ids."""
    found: dict[UUID, WorkRows] = {}
    for row in _typed(WorkRow, await connection.fetch(projections["works"], above, up_to)):
        found[row.id] = WorkRows(work=row)
    for run in _typed(RunRow, await connection.fetch(projections["runs"], above, up_to)):
        found.setdefault(run.work_id, WorkRows()).runs[run.run_id] = run
    for letter in _typed(LetterRow, await connection.fetch(projections["letters"], above, up_to)):
        letter.runs = _typed_runs(letter.runs)
        found.setdefault(letter.work_id, WorkRows()).letters[letter.id] = letter
    return found


def _typed_runs(stored: Any) -> Any:
    """Return the runs of a letter as structs; a damaged list stays as it is."""
    try:
        runs = msgspec.convert(stored, list[LetterRun])
    except msgspec.ValidationError:
        return stored
    return sorted(runs, key=attrgetter("created_at", "run_id"))


def _typed(kind: Any, rows: Iterable[Any]) -> Iterable[Any]:
    return (kind(**dict(row)) for row in rows)


class HistoryEvent(Struct, frozen=True, kw_only=True):
    """One event of history."""

    number: int
    id: str
    type: str
    subject: str
    source: str
    occurred_at: datetime
    recorded_at: datetime
    accepted: bool
    refusal: str | None
    work: UUID | None
    run: UUID | None
    lease: UUID | None
    data: Any


async def export(
    database: Database, *, since: datetime | None, until: datetime | None
) -> AsyncIterator[list[HistoryEvent]]:
    """Yield the events of a time span page by page, from one snapshot of the database."""
    async with (
        database.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        above = 0
        while rows := await connection.fetch(event_queries["span"], above, since, until, _EXPORTED):
            yield [msgspec.convert(dict(row), HistoryEvent) for row in rows]
            above = rows[-1]["number"]
