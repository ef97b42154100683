"""Marks: where a stream ended when all that had been decided before was published."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from headway_contract import subjects
from headway_decisions import healing
from headway_decisions.healing import Mark, Sight
from headway_jetstream_kit import Broker
from headway_jetstream_kit.stream_watch import see
from headway_postgres_kit import Clock, Database

from headway_scheduler.store import heals

# How long to wait for the relay, which hardly ever takes longer.
_TRIES = 20
_TRY_AGAIN = 0.1


async def read_marks(database: Database) -> dict[str, Mark]:
    """The marks by stream."""
    async with database.acquire() as connection:
        rows = await connection.fetch(heals["marks"])
    return {
        row["stream"]: Mark(
            created=row["created"], sequence=row["sequence"], taken_at=row["taken_at"]
        )
        for row in rows
    }


async def take_mark(
    database: Database,
    broker: Broker,
    marks: Mapping[str, Mark],
    sights: Mapping[str, Sight],
    *,
    clock: Clock,
) -> None:
    """Mark the streams anew, unless the consumer of work has yet to come to its mark.

    A mark that moved on with a stream that is never consumed would never be passed.
    """
    mark = marks.get(subjects.WORK_STREAM)
    if mark is None or healing.reach(mark, sights[subjects.WORK_STREAM]) != "waiting":
        taken_at = await _published(database, clock)
        seen = None if taken_at is None else await see(broker, subjects.WORK_STREAM)
        if taken_at is not None and seen is not None:
            now = Sight(created=seen.created, last_sequence=seen.last_sequence)
            await _write(database, subjects.WORK_STREAM, now, taken_at)
    async with database.acquire() as connection:
        now_is = await clock.now(connection)
    await _write(database, subjects.SETTLED_STREAM, sights[subjects.SETTLED_STREAM], now_is)


async def _published(database: Database, clock: Clock) -> datetime | None:
    """The time before which everything was published; none while the relay does not get on."""
    async with database.acquire() as connection:
        now = await clock.now(connection)
        last = await connection.fetchval(heals["last_message"])
    for _ in range(_TRIES):
        async with database.acquire() as connection:
            if last is None or await connection.fetchval(heals["published"], last):
                return now
        await asyncio.sleep(_TRY_AGAIN)
    return None


async def _write(database: Database, stream: str, seen: Sight, at: datetime) -> None:
    async with database.acquire() as connection:
        await connection.execute(heals["mark"], stream, seen.created, seen.last_sequence, at)
