"""Snapshots: what has to be said of work before the days are dropped that tell how it began.

A snapshot is folded from history and never read off the tables: what is wrong there must not
become true by being copied. Dead letters that the clean-up has deleted it leaves out, because
what history says of that is dropped one day, too.
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

from headway_dispatcher.history.pages import FIRST, LAST, Gone, fold_works, read_gone
from headway_dispatcher.store import HISTORY, SOURCE, read_now, retention

_BATCH = 200
# Of a day that are looked through at once.
_EVENTS = 20_000


async def keep_what_outlives(database: Database, day: date) -> int:
    """Write a snapshot of all work that must outlive a day; returns how many were written."""
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
    # Locked as the projector does it, so that nothing of them is being written just now.
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
        if _must_be_told(folded, gone)
    ]
    await HISTORY.append(connection, records, now=now)
    return len(records)


def _must_be_told(folded: WorkRows, gone: Gone) -> bool:
    return folded.work is not None and gone.absence(folded, WorkRows()) == "must_not"


def _record(work: UUID, covers: int, folded: WorkRows, now: datetime) -> Record:
    assert folded.work is not None  # noqa: S101 - only such are told
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
            # A letter's runs follow from the runs, and need not be told twice.
            letters=[structs.replace(letter, runs=[]) for letter in folded.letters.values()],
        ),
        work=work,
    )
