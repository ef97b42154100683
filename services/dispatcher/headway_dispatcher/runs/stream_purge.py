"""Purge projected events and orders of finished leases from the streams.

When the event stream is half full, it is purged up to the last projected message. The owner of a
lease whose last message is purged publishes again. Orders of finished leases are withdrawn first:
without any stored message of a lease, a worker could claim it again. Such orders also return when
the broker's storage is rolled back.
"""

from uuid import UUID

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.stream_watch import done_through, see
from headway_postgres_kit import Database
from headway_tracing.log import get_logger

from headway_dispatcher.runs.fencing import withdraw_order
from headway_dispatcher.store import heals

log = get_logger(__name__)

_FULL_ENOUGH = 0.5


async def purge_events(database: Database, broker: Broker) -> int:
    """Purge projected events if the stream is half full; returns the last purged sequence."""
    seen = await see(broker, subjects.EVENTS_STREAM)
    if seen is None or seen.max_bytes <= 0 or seen.bytes < seen.max_bytes * _FULL_ENOUGH:
        return 0
    floor = await done_through(broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER, seen)
    if floor is None or floor < seen.first_sequence:
        return 0
    await withdraw_leftovers(database, broker)
    await broker.api(f"STREAM.PURGE.{subjects.EVENTS_STREAM}", {"seq": floor + 1})
    log.info("event stream purged", up_to=floor)
    return floor


async def withdraw_leftovers(database: Database, broker: Broker) -> int:
    """Withdraw orders of finished leases; returns their number."""
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
        log.warning("orders of finished leases withdrawn", orders=len(rows))
    return len(rows)


async def _stored_orders(broker: Broker) -> dict[UUID, str]:
    """Return the leases whose orders are stored, with their jobs."""
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
