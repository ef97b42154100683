"""Snapshots: the state of work before the days of history that show its beginning are dropped.

A snapshot is folded from history and never copied from the tables, so that an error there does not
become part of history. It leaves out dead letters that the clean-up has deleted, because the record
of that deletion is dropped one day, too.
"""

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby
from operator import attrgetter
from uuid import UUID

from headway_history import Record, WorkRows
from headway_history.events import SNAPSHOT
from headway_history.rows import Snapshot
from headway_postgres_kit import Connection, Database
from msgspec import structs

from headway_dispatcher.history.pages import FIRST, LAST, fold_works, read_gone
from headway_dispatcher.store import HISTORY, SOURCE, read_now, retention

_BATCH = 200
# Events of a day that one query reads.
_EVENTS = 20_000


async def write_snapshots(database: Database, day: date) -> int:
    """Write a snapshot of all work that outlives a day; returns their number."""
    begins = datetime.combine(day, time(), UTC)
    bounds = begins, begins + timedelta(days=1)
    written, above = 0, FIRST
    while above != LAST:
        async with database.acquire() as connection:
            end = await connection.fetchval(retention["page_of_day"], *bounds, above, _EVENTS)
            up_to = end or LAST
            rows = await connection.fetch(retention["outliving"], *bounds, above, up_to)
        works = [row["work_id"] for row in rows]
        for first in range(0, len(works), _BATCH):
            async with database.transaction() as connection:
                written += await _snapshot(connection, works[first : first + _BATCH])
        above = up_to
    return written


async def _snapshot(connection: Connection, works: Sequence[UUID]) -> int:
    # Same lock order as the projector, so that no event of them is being written.
    await connection.execute(retention["lock_leases"], works)
    await connection.execute(retention["lock_works"], works)
    now = await read_now(connection)
    events = await HISTORY.of_these_works(connection, works)
    covers = {
        work: max(event.id for event in own) for work, own in groupby(events, attrgetter("work"))
    }
    gone = await read_gone(connection)
    rows = await connection.fetch(retention["letters_there"], works)
    letters = {row["id"] for row in rows}
    records = [
        _record(work, covers[work], gone.without_purged(folded, letters), now)
        for work, folded in (await fold_works(connection, events)).items()
        if folded.work is not None and gone.absence(folded, WorkRows()) == "must_not"
    ]
    await HISTORY.append(connection, records, now=now)
    return len(records)


def _record(work: UUID, covers: int, folded: WorkRows, now: datetime) -> Record:
    assert folded.work is not None  # noqa: S101 - the caller excludes other rows
    return Record(
        event_id=f"snapshot.{work}.{covers}",
        type=SNAPSHOT,
        subject=str(work),
        source=SOURCE,
        occurred_at=now,
        data=Snapshot(
            covers=covers,
            work=folded.work,
            runs=list(folded.runs.values()),
            # The runs of a letter follow from the runs of the work.
            letters=[structs.replace(letter, runs=[]) for letter in folded.letters.values()],
        ),
        work=work,
    )
