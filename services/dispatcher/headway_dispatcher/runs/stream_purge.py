"""Keeping the streams from filling up, and old orders from being run again.

What the projector has seen need not stay in the stream of events; when that is half full, it
is purged up to there. A lease whose last word is purged with it is told again by its owner.
An order of a finished lease must be gone before: once nothing is stored of the lease, anybody
could claim it anew. Such orders also come back when the broker's storage goes back in time.
"""

import logging
from uuid import UUID

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.stream_watch import done_through, see
from headway_postgres_kit import Database

from headway_dispatcher.runs.fencing import withdraw_order
from headway_dispatcher.store import heals

logger = logging.getLogger(__name__)

_FULL_ENOUGH = 0.5


async def purge_events(database: Database, broker: Broker) -> int:
    """Purge what is projected if the stream of events is half full; returns up to where."""
    seen = await see(broker, subjects.EVENTS_STREAM)
    if seen is None or seen.max_bytes <= 0 or seen.bytes < seen.max_bytes * _FULL_ENOUGH:
        return 0
    floor = await done_through(broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER, seen)
    if floor is None or floor < seen.first_sequence:
        return 0
    await withdraw_leftovers(database, broker)
    await broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}", {"seq": floor + 1})
    logger.info("the stream of events was half full: purged what is projected, up to %d", floor)
    return floor


async def withdraw_leftovers(database: Database, broker: Broker) -> int:
    """Remove the orders of finished leases; returns how many there were."""
    if await see(broker, subjects.RUNS_STREAM) is None:
        return 0
    stored = await _stored_orders(broker)
    if not stored:
        return 0
    async with database.acquire() as connection:
        rows = await connection.fetch(heals["finished"], list(stored))
    for row in rows:
        await withdraw_order(broker, stored[row["id"]], row["id"])
    if rows:
        logger.warning("%d order(s) of finished leases were withdrawn", len(rows))
    return len(rows)


async def _stored_orders(broker: Broker) -> dict[UUID, str]:
    """The leases whose orders are stored, with their jobs."""
    found: dict[UUID, str] = {}
    while True:
        request = {"subjects_filter": subjects.RUNS_SUBJECTS, "offset": len(found)}
        info = await broker.api(f"STREAM.INFO.{subjects.RUNS_STREAM}", request)
        page = info["state"].get("subjects") or {}
        for subject in page:
            job, lease = subjects.job_and_lease(subject)
            found[lease] = job
        if not page or len(found) >= info.get("total", 0):
            return found
