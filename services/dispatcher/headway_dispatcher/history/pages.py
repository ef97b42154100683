"""History and the tables that follow from it, side by side, a page of work at a time."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any
from uuid import UUID

import msgspec
from headway_history import LetterRow, RunRow, StoredEvent, WorkRow, WorkRows, fold
from headway_history.events import FORGOTTEN, Forgotten, open_data
from headway_history.rows import Absence, LetterRun
from headway_postgres_kit import Connection
from msgspec import Struct

from headway_dispatcher.store import HISTORY, projections

FIRST, LAST = UUID(int=0), UUID(int=(1 << 128) - 1)
_WORKS = 1000
_EVENTS = 20_000

_PRUNED, _CONFIRMED = "headway.manifest.pruned.v1", "headway.prune.confirmed.v1"


class Page(Struct, frozen=True, kw_only=True):
    """Work between two ids: how it should be, and how it is."""

    up_to: UUID
    events: int
    expected: dict[UUID, WorkRows]
    found: dict[UUID, WorkRows]
    # Leases of live runs that are gone (none), or that have ended, and when.
    dead_leases: dict[UUID, datetime | None]

    @property
    def works(self) -> list[UUID]:
        """All work that either side knows, in the order of ids."""
        return sorted(self.expected.keys() | self.found.keys())


class Gone(Struct, frozen=True, kw_only=True):
    """What history says was deleted: with its manifest, or because it is old."""

    pruned: set[UUID]
    confirmed: set[UUID]
    settled_before: datetime | None
    resolved_before: datetime | None

    def without_purged(self, expected: WorkRows, there: Collection[UUID]) -> WorkRows:
        """What is expected, less the letters that were seen to long ago and are not `there`."""
        mark = self.resolved_before
        if mark is None or not expected.letters:
            return expected
        kept = {
            key: letter
            for key, letter in expected.letters.items()
            if key in there or letter.resolved_at is None or letter.resolved_at >= mark
        }
        return WorkRows(work=expected.work, runs=expected.runs, letters=kept)

    def absence(self, expected: WorkRows, found: WorkRows) -> Absence:
        """Whether the rows of a piece of work may, or must, be gone."""
        work = expected.work
        if work is None:
            return "must_not"
        if work.manifest_id in self.confirmed:
            return "must"
        if work.manifest_id in self.pruned:
            return "may"
        return "may" if found.is_empty and self._is_forgotten(expected) else "must_not"

    def _is_forgotten(self, expected: WorkRows) -> bool:
        """Whether the clean-up may have been at it: settled, and its letters seen to, long ago."""
        work, mark = expected.work, self.settled_before
        if mark is None or work is None:
            return False
        ends = [work.settled_at, *(letter.resolved_at for letter in expected.letters.values())]
        return all(end is not None and end < mark for end in ends)


async def read_gone(connection: Connection) -> Gone:
    """What was deleted, as far as history reaches."""
    events = await HISTORY.of_no_work(connection, [_PRUNED, _CONFIRMED, FORGOTTEN])
    told = [(event.type, open_data(event)) for event in events]
    marks = [data for _, data in told if isinstance(data, Forgotten)]
    return Gone(
        pruned={data.manifest_id for type_, data in told if type_ == _PRUNED},
        confirmed={data.manifest_id for type_, data in told if type_ == _CONFIRMED},
        settled_before=max(
            (one.settled_before for one in marks if one.settled_before), default=None
        ),
        resolved_before=max(
            (one.resolved_before for one in marks if one.resolved_before), default=None
        ),
    )


async def read_page(connection: Connection, above: UUID) -> Page | None:
    """The next page of work above an id; none if there is no more."""
    if above == LAST:
        return None
    end = await connection.fetchval(projections["page_end"], above, _WORKS, _EVENTS)
    up_to: UUID = LAST if end is None else end
    events = await HISTORY.of_works(connection, above, up_to)
    return Page(
        up_to=up_to,
        events=len(events),
        expected=await fold_works(connection, events),
        found=await _find(connection, above, up_to),
        dead_leases=await _dead_leases(connection, above, up_to),
    )


async def _dead_leases(
    connection: Connection, above: UUID, up_to: UUID
) -> dict[UUID, datetime | None]:
    rows = await connection.fetch(projections["dead_leases"], above, up_to)
    return {row["id"]: row["ended_at"] for row in rows}


async def fold_works(connection: Connection, events: Sequence[StoredEvent]) -> dict[UUID, WorkRows]:
    """Fold the events of several works, which come in the order of works.

    A lease of several runs is claimed once for all of them, and that event is no single work's.
    """
    by_work = {
        work: list(own) for work, own in groupby(events, attrgetter("work")) if work is not None
    }
    folded = {work: fold(own) for work, own in by_work.items()}
    unclaimed = {
        run.lease_id: work
        for work, one in folded.items()
        for run in one.runs.values()
        if run.host is None
    }
    shared = await HISTORY.of_leases(connection, unclaimed)
    of_lease: dict[UUID | None, list[StoredEvent]] = {}
    for event in shared:
        of_lease.setdefault(event.lease, []).append(event)
    for work, one in list(folded.items()):
        leases = {run.lease_id for run in one.runs.values() if run.host is None}
        more = [event for lease in leases for event in of_lease.get(lease, ())]
        if more:
            folded[work] = fold([*by_work[work], *more])
    return folded


async def _find(connection: Connection, above: UUID, up_to: UUID) -> dict[UUID, WorkRows]:
    found: dict[UUID, WorkRows] = {}
    for row in _typed(WorkRow, await connection.fetch(projections["works"], above, up_to)):
        found[row.id] = WorkRows(work=row)
    for run in _typed(RunRow, await connection.fetch(projections["runs"], above, up_to)):
        found.setdefault(run.work_id, WorkRows()).runs[run.run_id] = run
    for letter in _typed(LetterRow, await connection.fetch(projections["letters"], above, up_to)):
        letter.runs = _typed_runs(letter.runs)
        found.setdefault(letter.work_id, WorkRows()).letters[letter.id] = letter
    return found


def _typed_runs(told: Any) -> Any:
    """The runs of a letter, with times as such; what is no such list is told as it is."""
    try:
        runs = msgspec.convert(told, list[LetterRun])
    except msgspec.ValidationError:
        return told
    return sorted(runs, key=attrgetter("created_at", "run_id"))


def _typed(kind: Any, rows: Iterable[Any]) -> Iterable[Any]:
    return (kind(**dict(row)) for row in rows)
