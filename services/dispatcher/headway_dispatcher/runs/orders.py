"""Unclaimed orders: republish lost ones, withdraw expired ones.

The stream holds one message for each lease, so it refuses an order that is still there. An order
that is gone was lost with the broker's storage, or a worker acknowledged it and its claim was
lost. Such a worker names the lease in its heartbeats, and then the order is not republished. So
orders are republished only when every live worker had time for a heartbeat, and this dispatcher
would have received it.

The gate settles waiting work after its `start_by`. An unclaimed order is withdrawn under the fence
of the claim, so a worker that claimed in time continues.
"""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_clock import monotonic
from headway_contract import encode, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_jetstream_kit import Broker, Refused, Stored
from headway_jetstream_kit.publish import publish
from headway_jetstream_kit.stream_watch import Watch
from headway_postgres_kit import Database
from headway_tracing import span
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.events import doubt_record, own_event
from headway_dispatcher.provisioning import renew_seconds
from headway_dispatcher.runs.fencing import withdraw_unclaimed
from headway_dispatcher.runs.leases import LeaseView, read_lease
from headway_dispatcher.runs.settle import EXPIRED
from headway_dispatcher.runs.stream_purge import withdraw_leftovers
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import HISTORY, heals, leases

log = get_logger(__name__)

BATCH = 500
_EXPIRY_BATCH = 1000
# Heartbeats without the lease, after which a worker does not have it.
_BEATS = 4
_BEATS_BETWEEN_PASSES = 10


class OrdersResult(Struct, frozen=True, kw_only=True):
    """The result of a pass over unclaimed orders."""

    trusted: bool
    unclaimed: int = 0
    reissued: int = 0


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

    async def run_once(self) -> OrdersResult:
        """Publish every unclaimed order that no heartbeat names."""
        if not await self._is_time():
            return OrdersResult(trusted=False)
        async with self._database.acquire() as connection:
            now = await store.read_now(connection)
            patience = timedelta(seconds=self._patience)
            witness = await store.read_witness(connection, self._name)
            if witness is None or not witness.would_have_heard(
                now, throughout=patience, gap=patience
            ):
                return OrdersResult(trusted=False)
            orphaned = now - timedelta(seconds=self._settings.orphan_timeout_seconds)
            rows = await connection.fetch(
                heals["unclaimed"], now - patience, min(orphaned, now - patience), BATCH
            )
        self._published_at = monotonic()
        published = await asyncio.gather(*(self._republish(row, now) for row in rows))
        gone = [row for row, stored in zip(rows, published, strict=True) if stored]
        if gone:
            log.warning("lost orders republished", orders=len(gone))
            runs = sorted(run for row in gone for run in row["ids"])
            async with self._database.transaction() as connection:
                doubted = await connection.fetch(heals["note_reissued"], runs)
                records = [doubt_record(row, now) for row in doubted]
                await HISTORY.append(connection, records, now=now)
        return OrdersResult(trusted=True, unclaimed=len(rows), reissued=len(gone))

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
        order = RunDispatched(
            lease=row["id"],
            token=row["token"],
            job=row["job"],
            heartbeat_seconds=self._settings.heartbeat_seconds,
            orphan_timeout_seconds=self._settings.orphan_timeout_seconds,
            renew_seconds=renew_seconds(self._settings),
            on_lost_contact=row["on_lost_contact"],
            runs=msgspec.convert(row["runs"], list[OrderedRun]),
        )
        context = row["traceparent"]
        with span("reissue", parent=context, lease=str(order.lease)):
            published = own_event(
                order, id=order.lease, subject=order.lease, time=now, traceparent=context
            )
            subject = subjects.order(order.job, order.lease)
            answer = await publish(self._broker, subject, encode(published))
        if isinstance(answer, Refused) and answer.err_code == subjects.ORDER_ALREADY_STORED:
            return False
        if not isinstance(answer, Stored):
            log.debug("order not republished", lease=row["id"], answer=answer)
        return isinstance(answer, Stored)


async def withdraw_expired(
    database: Database, broker: Broker, settings: DispatcherSettings, name: str
) -> float | None:
    """Withdraw every unclaimed order with a run that had to begin by now."""
    async with database.acquire() as connection:
        times = await store.read_times(connection, database)
        now = times.schedule
        silent_since = times.real - timedelta(seconds=settings.orphan_timeout_seconds)
        rows = await connection.fetch(leases["unclaimed_until"], _EXPIRY_BATCH, silent_since)
    late = [row for row in rows if row["start_by"] <= now]
    reasons = {row["run_id"]: EXPIRED for row in late}
    retry_after = await withdraw_unclaimed(
        broker, database, late, reasons, publisher=name, cause="expired", now=now
    )
    if retry_after is not None:
        return retry_after
    upcoming = [row["start_by"] for row in rows if row["start_by"] > now]
    if upcoming:
        return float((min(upcoming) - now).total_seconds())
    return 0.0 if len(rows) == _EXPIRY_BATCH else None
