"""Pages of history: read with the tables that follow from it, or exported."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.operations import HistoryEvent
from headway_history import LetterRow, RunRow, StoredEvent, WorkRow, WorkRows, fold
from headway_history.events import FORGOTTEN, SNAPSHOT, Forgotten, open_data
from headway_history.rows import Absence, LetterRun, read_terms
from headway_history.store import PackedEvents
from headway_postgres_kit import Connection, Database
from msgspec import Struct

from headway_dispatcher.store import HISTORY, projections
from headway_dispatcher.store import events as event_queries

FIRST, LAST = UUID(int=0), UUID(int=(1 << 128) - 1)
_WORKS = 1000
_EVENTS = 5000
_EXPORTED = 1000
_FOLDED_AT_ONCE = 50

_PRUNED, _CONFIRMED = "headway.manifest.pruned.v1", "headway.prune.confirmed.v1"


class Page(Struct, frozen=True, kw_only=True):
    """Work between two ids, as history has it and as the tables have it."""

    up_to: UUID
    events: dict[UUID, list[StoredEvent]]
    found: dict[UUID, WorkRows]
    # Leases of live runs that are missing (`None`), or have ended at this time.
    dead_leases: dict[UUID, datetime | None]
    # The fold of the events.
    expected: dict[UUID, WorkRows] = {}

    @property
    def works(self) -> list[UUID]:
        """All work of history and of the tables, by id."""
        return sorted(self.events.keys() | self.found.keys())

    async def fold(self) -> None:
        """Fold the events, while another task may read the next page."""
        for number, (work, events) in enumerate(self.events.items()):
            if number % _FOLDED_AT_ONCE == 0:
                await asyncio.sleep(0)
            self.expected[work] = fold(events)


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

    def is_pruned(self, rows: WorkRows) -> bool:
        """Whether the manifest of the work was deleted."""
        return rows.work is not None and rows.work.manifest_id in self.pruned | self.confirmed

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


async def read_page(connection: Connection, above: UUID, packed: PackedEvents) -> Page | None:
    """Read the next page of work above an id; `None` if there is no more."""
    if above == LAST:
        return None
    end = await connection.fetchval(projections["page_end"], above, _WORKS, _EVENTS)
    up_to: UUID = LAST if end is None else end
    events = await HISTORY.of_works(connection, above, up_to) + await packed.up_to(up_to)
    by_work = await with_lease_events(connection, events)
    found = await _find(connection, above, up_to)
    dead = await connection.fetch(projections["dead_leases"], above, up_to)
    return Page(
        up_to=up_to,
        events=by_work,
        found=found,
        dead_leases={row["id"]: row["ended_at"] for row in dead},
    )


async def with_lease_events(
    connection: Connection, events: Iterable[StoredEvent]
) -> dict[UUID, list[StoredEvent]]:
    """Return the events of each work, and those of the leases of its runs.

    A lease with several runs is claimed once for all of them, by an event that has no single work.
    """
    by_work: dict[UUID, list[StoredEvent]] = {}
    for event in events:
        if event.work is not None:
            by_work.setdefault(event.work, []).append(event)
    leases = {work: _leases(own) for work, own in by_work.items()}
    shared: dict[UUID | None, list[StoredEvent]] = {}
    for event in await HISTORY.of_leases(connection, set().union(*leases.values())):
        shared.setdefault(event.lease, []).append(event)
    for work, own in by_work.items():
        own += [event for lease in leases[work] for event in shared.get(lease, ())]
    return by_work


def _leases(events: Sequence[StoredEvent]) -> set[UUID]:
    """Return the leases of the runs that the events of a piece of work mention."""
    leases = {event.lease for event in events if event.run is not None and event.lease is not None}
    for event in events:
        if event.type == SNAPSHOT:
            leases.update(run.lease_id for run in open_data(event).runs)
    return leases


async def _find(connection: Connection, above: UUID, up_to: UUID) -> dict[UUID, WorkRows]:
    """Read the rows of all work between two ids."""
    found: dict[UUID, WorkRows] = defaultdict(WorkRows)
    for row in _typed(WorkRow, await connection.fetch(projections["works"], above, up_to)):
        row.terms = read_terms(row.terms)
        found[row.id].work = row
    for run in _typed(RunRow, await connection.fetch(projections["runs"], above, up_to)):
        found[run.work_id].runs[run.run_id] = run
    for letter in _typed(LetterRow, await connection.fetch(projections["letters"], above, up_to)):
        letter.runs = _typed_runs(letter.runs)
        found[letter.work_id].letters[letter.id] = letter
    return found


def _typed_runs(stored: Any) -> Any:
    """Return the runs of a letter as structs; a damaged list stays as it is."""
    try:
        runs = msgspec.convert(stored, list[LetterRun])
    except msgspec.ValidationError:
        return stored
    return sorted(runs, key=attrgetter("created_at", "run_id"))


def _typed(kind: Any, rows: Sequence[Any]) -> list[Any]:
    """Return rows as structs; the statement reads the columns in the order of the fields."""
    return [kind(*row) for row in rows]


async def export(
    database: Database, *, since: datetime | None, until: datetime | None
) -> AsyncIterator[list[HistoryEvent]]:
    """Yield the events of a time span page by page, from one snapshot of the database."""
    async with database.snapshot() as connection:
        above = 0
        while rows := await connection.fetch(event_queries["span"], above, since, until, _EXPORTED):
            yield [msgspec.convert(dict(row), HistoryEvent) for row in rows]
            above = rows[-1]["number"]
