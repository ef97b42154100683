"""Orders that were lost: put back into the stream, so that somebody runs what they grant.

The stream holds one message for each lease, so an order that is still there is refused a
second time and nothing is doubled. One that is gone was lost with the broker's storage, or
was acknowledged by a worker whose claim was lost with it. Such a worker names the lease in
its heartbeats, and as long as anybody does, the order stays where it is: the worker's own
words will tell. So orders are put back only when every live worker had the time to speak up
and this dispatcher would have heard it.
"""

import asyncio
import logging
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_clock import monotonic
from headway_contract import encode, event, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_jetstream_kit import Broker, Refused, Stored
from headway_jetstream_kit.publish import publish
from headway_jetstream_kit.stream_watch import Watch
from headway_postgres_kit import Database
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.history import history_records
from headway_dispatcher.provisioning import renew_seconds
from headway_dispatcher.runs.leases import LeaseView, read_lease
from headway_dispatcher.runs.stream_purge import withdraw_leftovers
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import HISTORY, SOURCE, heals

logger = logging.getLogger(__name__)

BATCH = 500
# Heartbeats that a worker may miss before it is taken for one that does not have the lease.
_BEATS = 4
_BEATS_BETWEEN_OFFERS = 10


class OrdersResult(Struct, frozen=True, kw_only=True):
    """What a pass over unclaimed orders found."""

    trusted: bool
    unclaimed: int = 0
    reissued: int = 0


class Orders:
    """Puts lost orders back, for one dispatcher process."""

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
        self._offered_at: float | None = None

    async def run_once(self) -> OrdersResult:
        """Offer every order again that nobody has claimed and nobody lists."""
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
        self._offered_at = monotonic()
        put_back = await asyncio.gather(*(self._offer(row, now) for row in rows))
        gone = [row for row, stored in zip(rows, put_back, strict=True) if stored]
        if gone:
            logger.warning("%d order(s) were gone from the stream and were put back", len(gone))
            async with self._database.transaction() as connection:
                doubted = await connection.fetch(
                    heals["note_reissued"], sorted(run for row in gone for run in row["ids"])
                )
                await HISTORY.append(connection, history_records.in_doubt(doubted, now), now=now)
        return OrdersResult(trusted=True, unclaimed=len(rows), reissued=len(gone))

    @property
    def _patience(self) -> float:
        """How long a live worker may take to name a lease that it has."""
        return _BEATS * self._settings.heartbeat_seconds

    async def _is_time(self) -> bool:
        """Whether the streams are what they were for long enough; looks after them if not.

        After a loss every worker needs the time to name what it has. What was stored before a
        roll-back and ended since must not be run again meanwhile.
        """
        if await self._watch.look():
            self._steady_since, self._offered_at, self._leftovers = monotonic(), None, True
        if self._leftovers:
            await withdraw_leftovers(self._database, self._broker)
            self._leftovers = False
        if monotonic() - self._steady_since < self._patience:
            return False
        every = _BEATS_BETWEEN_OFFERS * self._settings.heartbeat_seconds
        return self._offered_at is None or monotonic() - self._offered_at >= every

    async def _offer(self, row: Any, now: datetime) -> bool:
        """Publish one order; true if it was not there any more.

        If the stream holds a claim of its lease, a worker has it who is not projected yet.
        """
        view = await read_lease(self._broker, self._database, row["id"])
        if not isinstance(view, LeaseView) or not view.is_free:
            return False
        with span("reissue", parent=row["traceparent"], lease=str(row["id"])):
            answer = await publish(
                self._broker, subjects.order(row["job"], row["id"]), encode(self._order(row, now))
            )
        if isinstance(answer, Refused) and answer.err_code == subjects.ORDER_ALREADY_STORED:
            return False
        if not isinstance(answer, Stored):
            logger.debug("the order of lease %s not put back: %s", row["id"], answer)
        return isinstance(answer, Stored)

    def _order(self, row: Any, now: datetime) -> Any:
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
        return event(
            order,
            id=row["id"],
            source=SOURCE,
            subject=row["id"],
            time=now,
            traceparent=row["traceparent"],
        )
