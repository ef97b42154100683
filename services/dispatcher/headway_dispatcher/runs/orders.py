"""Orders in the stream: republish lost ones, purge those of finished leases.

The stream holds one message for each lease, so it refuses an order that is still there. An order
that is gone was lost with the broker's storage, or a worker acknowledged it and its claim was
lost. Such a worker names the lease in its heartbeats, and then the order is not republished. So
orders are republished only when every live worker had time for a heartbeat, and this dispatcher
would have received it.

When the event stream is half full, it is purged up to the last projected message. The owner of a
lease whose last message is purged publishes again. Orders of finished leases are withdrawn first:
without any stored message of a lease, a worker could claim it again. Such orders also return when
the broker's storage is rolled back.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_clock import monotonic
from headway_contract import encode, subjects
from headway_contract.orders import OrderedRun
from headway_jetstream_kit import Broker, Refused, Stored
from headway_jetstream_kit.publish import publish
from headway_jetstream_kit.stream_watch import Watch, done_through, see
from headway_postgres_kit import Connection, Database
from headway_tracing import span
from headway_tracing.log import get_logger

from headway_dispatcher import store
from headway_dispatcher.events import doubt_record, order_of, own_event
from headway_dispatcher.runs.fencing import withdraw_order
from headway_dispatcher.runs.leases import LeaseView, read_lease
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import HISTORY, heals

log = get_logger(__name__)

BATCH = 500
# Heartbeats without the lease, after which a worker does not have it.
_BEATS = 4
_BEATS_BETWEEN_PASSES = 10
# Share of the event stream that must be used before it is purged.
_FULL_ENOUGH = 0.5


class Orders:
    """Republishes lost orders, for one dispatcher process."""

    def __init__(
        self, database: Database, broker: Broker, settings: DispatcherSettings, *, name: str
    ) -> None:
        self._database = database
        self._broker = broker
        self._settings = settings
        self._name = name
        self._watch = Watch(broker, subjects.RUNS_STREAM, subjects.EVENTS_STREAM)
        self._steady_since = monotonic()
        self._leftovers = True
        self._published_at: float | None = None

    async def run_once(self) -> None:
        """Publish every unclaimed order that no heartbeat names."""
        if not await self._is_time():
            return
        async with self._database.acquire() as connection:
            now = await store.read_now(connection)
            patience = timedelta(seconds=self._patience)
            witness = await store.read_witness(connection, self._name)
            if witness is None or not witness.would_have_heard(
                now, throughout=patience, gap=patience
            ):
                return
            orphaned = now - timedelta(seconds=self._settings.orphan_timeout_seconds)
            found = await connection.fetch(
                heals["unclaimed"], now - patience, min(orphaned, now - patience), BATCH
            )
            rows = await connection.fetch(heals["orders"], [row["id"] for row in found])
        self._published_at = monotonic()
        published = await asyncio.gather(*(self._republish(row, now) for row in rows))
        gone = [row for row, stored in zip(rows, published, strict=True) if stored]
        if gone:
            log.warning("lost orders republished", orders=len(gone))
            runs = sorted(run for row in gone for run in row["ids"])
            async with self._database.transaction() as connection:
                await connection.execute(heals["lock_leases"], [row["id"] for row in gone])
                await connection.execute(heals["keep_runs"], runs)
                doubted = await connection.fetch(heals["note_reissued"], runs)
                records = [doubt_record(row, now) for row in doubted]
                await HISTORY.append(connection, records, now=now)

    @property
    def _patience(self) -> float:
        """Time that a live worker may take to name a lease that it holds."""
        return _BEATS * self._settings.heartbeat_seconds

    async def _is_time(self) -> bool:
        """Whether the streams are unchanged for long enough; withdraws leftovers if they changed.

        After a loss every worker needs time to name its leases. Orders that a roll-back of the
        stream brought back, and whose runs have ended, must not run again meanwhile.
        """
        if await self._watch.look():
            self._steady_since, self._published_at, self._leftovers = monotonic(), None, True
        if self._leftovers:
            await withdraw_leftovers(self._database, self._broker)
            self._leftovers = False
        if monotonic() - self._steady_since < self._patience:
            return False
        every = _BEATS_BETWEEN_PASSES * self._settings.heartbeat_seconds
        return self._published_at is None or monotonic() - self._published_at >= every

    async def _republish(self, row: Any, now: datetime) -> bool:
        """Publish an order; true if it was gone.

        If the stream holds a claim of its lease, a worker has it and the projector lags behind.
        """
        view = await read_lease(self._broker, self._database, row["id"])
        if not isinstance(view, LeaseView) or not view.is_free:
            return False
        with span("reissue", parent=row["traceparent"], lease=str(row["id"])):
            subject = subjects.order(row["job"], row["id"])
            answer = await publish(self._broker, subject, _rebuilt(row, self._settings, now))
        if isinstance(answer, Refused) and answer.err_code == subjects.ORDER_ALREADY_STORED:
            return False
        if not isinstance(answer, Stored):
            log.debug("order not republished", lease=row["id"], answer=answer)
        return isinstance(answer, Stored)


def _rebuilt(row: Any, settings: DispatcherSettings, now: datetime) -> bytes:
    """Build the order of a lease again, from its row and its work."""
    runs = msgspec.convert(row["runs"], list[OrderedRun])
    order = order_of(
        settings,
        runs,
        lease=row["id"],
        token=row["token"],
        job=row["job"],
        on_lost_contact=row["on_lost_contact"],
    )
    context = row["traceparent"]
    return encode(
        own_event(order, id=order.lease, subject=order.lease, time=now, traceparent=context)
    )


async def rebuild_orders(
    settings: DispatcherSettings, connection: Connection, message_ids: Sequence[str]
) -> dict[str, bytes]:
    """Return orders whose handover to the relay was lost, by message id."""
    rows = await connection.fetch(heals["orders"], [UUID(id_) for id_ in message_ids])
    now = await store.read_now(connection)
    return {str(row["id"]): _rebuilt(row, settings, now) for row in rows}


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
