"""Marks: the end of a stream at a time when every earlier decision was published."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

from headway_contract import subjects
from headway_decisions import healing
from headway_decisions.healing import Mark, Sight
from headway_jetstream_kit import Broker
from headway_jetstream_kit.stream_watch import done_through, see
from headway_postgres_kit import Database

from headway_scheduler.store import heals

# How long to wait for the relay, which rarely takes longer.
_TRIES = 20
_PAUSE_SECONDS = 0.1

_CONSUMERS = {
    subjects.WORK_STREAM: subjects.WORK_CONSUMER,
    subjects.SETTLED_STREAM: subjects.SETTLED_CONSUMER,
}


async def read_sights(broker: Broker) -> dict[str, Sight] | None:
    """Read the state of the streams between the services; `None` if one is missing."""
    sights: dict[str, Sight] = {}
    for stream, consumer in _CONSUMERS.items():
        seen = await see(broker, stream)
        if seen is None:
            return None
        done = await done_through(broker, stream, consumer, seen)
        sights[stream] = Sight(
            created=seen.created, last_sequence=seen.last_sequence, done_through=done or 0
        )
    return sights


async def read_marks(database: Database) -> dict[str, Mark]:
    """Read the marks by stream."""
    async with database.acquire() as connection:
        rows = await connection.fetch(heals["marks"])
    return {
        row["stream"]: Mark(
            created=row["created"], sequence=row["sequence"], taken_at=row["taken_at"]
        )
        for row in rows
    }


async def take_marks(
    database: Database, broker: Broker, marks: Mapping[str, Mark], sights: Mapping[str, Sight]
) -> None:
    """Mark the streams again, except a stream of work whose consumer is still before its mark.

    A mark that moved on with a stream that is never consumed would never be passed.
    """
    work, settled = subjects.WORK_STREAM, subjects.SETTLED_STREAM
    mark = marks.get(work)
    if mark is None or healing.reach(mark, sights[work]) != "waiting":
        taken_at = await _published_until(database)
        seen = None if taken_at is None else await see(broker, work)
        if taken_at is not None and seen is not None:
            taken = (work, seen.created, seen.last_sequence, taken_at)
            async with database.acquire() as connection:
                await connection.execute(heals["mark"], *taken)
    sight = sights[settled]
    async with database.acquire() as connection:
        now = await database.clock.now(connection)
        taken = (settled, sight.created, sight.last_sequence, now)
        await connection.execute(heals["mark"], *taken)


async def _published_until(database: Database) -> datetime | None:
    """Return a time before which everything was published; `None` while the relay is behind."""
    async with database.acquire() as connection:
        now = await database.clock.now(connection)
        last = await connection.fetchval(heals["last_message"])
    for _ in range(_TRIES):
        async with database.acquire() as connection:
            if last is None or await connection.fetchval(heals["published"], last):
                return now
        await asyncio.sleep(_PAUSE_SECONDS)
    return None
