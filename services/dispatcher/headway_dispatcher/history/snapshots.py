"""Snapshots: the state of work before the days of history that show its beginning are dropped.

A snapshot is folded from history and never copied from the tables, so that an error there does not
become part of history.
"""

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from uuid import UUID

from headway_history import Record, WorkRow, WorkRows, fold
from headway_history.events import SNAPSHOT
from headway_history.rows import Snapshot
from headway_postgres_kit import Database
from msgspec import structs

from headway_dispatcher.events import deleted_record
from headway_dispatcher.history.pages import Gone, read_gone, with_lease_events
from headway_dispatcher.store import HISTORY, SOURCE, read_now, retention

_BATCH = 200
# Longest time to find the work that outlives a day.
_SEARCH_SECONDS = 3600.0


async def write_snapshots(database: Database, day: date) -> int:
    """Write a snapshot of all work that outlives a day; returns their number."""
    begins = datetime.combine(day, time(), UTC)
    bounds = begins, begins + timedelta(days=1)
    written = 0
    async with database.snapshot() as history:
        # By number, because the clock may have been set back at midnight.
        covers = await history.fetchval(retention["last_of_day"], *bounds)
        if covers is None:
            return 0
        gone = await read_gone(history)
        await HISTORY.be_patient(history)
        query = retention["outliving"]
        rows = await history.fetch(query, *bounds, covers, timeout=_SEARCH_SECONDS)
        works: list[UUID] = [row["work_id"] for row in rows]
        outdated = {row["work_id"] for row in rows if row["snapshot_stays"]}
        packed = await HISTORY.packed(history, works, up_to=covers)
        for first in range(0, len(works), _BATCH):
            batch = works[first : first + _BATCH]
            events = await HISTORY.of_these_works(history, batch, up_to=covers)
            events += await packed.up_to(batch[-1])
            by_work = await with_lease_events(history, events)
            folded = {work: fold(own) for work, own in by_work.items()}
            needed = [
                rows
                for work, rows in folded.items()
                if gone.absence(rows, WorkRows()) == "must_not"
                or (work in outdated and not gone.is_pruned(rows))
            ]
            written += await _write(database, needed, covers)
        async with database.transaction() as connection:
            await HISTORY.append(connection, _marks(gone))
    return written


async def _write(database: Database, folded: Iterable[WorkRows], covers: int) -> int:
    async with database.transaction() as connection:
        now = await read_now(connection)
        records = [
            _record(rows.work, rows, covers, now) for rows in folded if rows.work is not None
        ]
        await HISTORY.append(connection, records, now=now)
    return len(records)


def _marks(gone: Gone) -> list[Record]:
    """Repeat the latest deletions, so that they outlive the snapshots of the work."""
    settled, resolved = gone.settled_before, gone.resolved_before
    return [
        *([deleted_record("settled_before", settled)] if settled else ()),
        *([deleted_record("resolved_before", resolved)] if resolved else ()),
    ]


def _record(work: WorkRow, rows: WorkRows, covers: int, now: datetime) -> Record:
    return Record(
        event_id=f"snapshot.{work.id}.{covers}",
        type=SNAPSHOT,
        subject=str(work.id),
        source=SOURCE,
        occurred_at=now,
        data=Snapshot(
            covers=covers,
            work=work,
            runs=list(rows.runs.values()),
            # The runs of a letter follow from the runs of the work.
            letters=[structs.replace(letter, runs=[]) for letter in rows.letters.values()],
        ),
        work=work.id,
    )
