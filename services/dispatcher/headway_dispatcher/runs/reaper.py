"""The reaper: revoke leases of workers that are silent or cannot stop a run.

It needs evidence. No heartbeat has named the lease for the orphan timeout, and the dispatcher's
own heartbeat, which travels the same way as a worker's, arrived all that time: a dispatcher that
was cut off reaps nothing. An unclaimed order is kept while all workers that serve its job are
busy. The fence is the last projected sequence, so the broker refuses if the worker has published
since: a projector that lags behind cannot end a finished run.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
from headway_contract import Event, lifecycle, subjects
from headway_decisions.capacity.slots import Worker
from headway_decisions.runs import reaping
from headway_jetstream_kit import Broker, Refused, Stored
from headway_jetstream_kit.provisioning import consumer_info
from headway_postgres_kit import Database
from headway_tracing import span
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.runs.fencing import lease_events, publish_fenced, withdraw_order
from headway_dispatcher.runs.leases import last_stored
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import leases, workers

log = get_logger(__name__)

BATCH = 100
# Time that a worker with a free slot may take to claim a ready order.
_CLAIM_TIME = timedelta(seconds=5)


class ReaperResult(Struct, frozen=True, kw_only=True):
    """The result of a pass; `reasons` counts revoked leases."""

    trusted: bool
    silent: int = 0
    revoked: int = 0
    reasons: Mapping[str, int] = MappingProxyType({})


@dataclass
class Reaper:
    """The reaper of one dispatcher process."""

    database: Database
    broker: Broker
    settings: DispatcherSettings
    name: str
    # When all workers that serve a job were last full: then its orders wait their turn.
    _full_at: dict[str, datetime] = field(default_factory=dict)

    async def run_once(self) -> ReaperResult:
        """Revoke leases of silent workers and of unclaimed orders."""
        async with self.database.acquire() as connection:
            now = await store.read_now(connection)
            timeout = timedelta(seconds=self.settings.orphan_timeout_seconds)
            gap = timedelta(seconds=3 * self.settings.heartbeat_seconds)
            witness = await store.read_witness(connection, self.name)
            # Whether a worker's heartbeat would have been received.
            if witness is None or not witness.would_have_heard(now, throughout=timeout, gap=gap):
                return ReaperResult(trusted=False)
            heard_after = now - timeout
            serving = await connection.fetch(workers["serving"], heard_after)
            fleet = msgspec.convert([dict(row) for row in serving], list[Worker])
            self._full_at |= dict.fromkeys(reaping.jobs_that_wait_their_turn(fleet), now)
            self._full_at = {job: at for job, at in self._full_at.items() if now - at < _CLAIM_TIME}
            silent = await connection.fetch(
                leases["silent"],
                heard_after,
                now - timedelta(seconds=self.settings.stale_pending_seconds),
                now,
                BATCH,
                sorted(self._full_at),
            )
            await connection.execute(workers["note_gone"], heard_after)
            await connection.execute(workers["delete_witnesses"], now - timedelta(days=1))
        revoked = await asyncio.gather(*(self._revoke(row, now) for row in silent))
        reasons = Counter(row["kind"] for row, gone in zip(silent, revoked, strict=True) if gone)
        return ReaperResult(trusted=True, silent=len(silent), revoked=sum(revoked), reasons=reasons)

    async def _revoke(self, row: Any, now: datetime) -> bool:
        kind: reaping.Silence = row["kind"]
        with span("revoke", lease=str(row["id"]), reason=kind):
            events = self._events(row, kind, now)
            answer = await publish_fenced(self.broker, row["id"], events, expected=row["sequence"])
            if isinstance(answer, Refused):
                expected = await self._sequence_after_refusal(row)
                if expected is not None:
                    lease = row["id"]
                    answer = await publish_fenced(self.broker, lease, events, expected=expected)
            if not isinstance(answer, Stored):
                log.debug("lease not revoked", lease=row["id"], answer=answer)
                return False
            await withdraw_order(self.broker, row["job"], row["id"])
        log.warning("lease revoked", lease=row["id"], worker=row["claimed_by"], reason=kind)
        return True

    async def _sequence_after_refusal(self, row: Any) -> int | None:
        """Return the sequence to expect after a refusal; `None` if the worker may have published.

        The stream may have dropped the lease's messages. Or a worker published past the fence, or
        a message was rejected. Then the last stored sequence is right, provided that the
        projector has read up to it and the lease is still open.
        """
        stored = await last_stored(self.broker, row["id"])
        if stored is None:
            return 0
        projector = await consumer_info(
            self.broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER
        )
        if projector is None or projector["ack_floor"]["stream_seq"] < stored.sequence:
            return None
        async with self.database.acquire() as connection:
            known = await connection.fetchrow(leases["state_of"], row["id"])
        # A worker that claimed it since is not the silent one.
        if known is None or known["ended"] or known["claimed_by"] != row["claimed_by"]:
            return None
        return stored.sequence

    def _events(self, row: Any, kind: reaping.Silence, now: datetime) -> list[Event]:
        """Return the revocation and the end of each live run."""
        credentials = {"lease": row["id"], "token": row["token"], "nonce": self.name}
        live = msgspec.convert(row["live_runs"], list[reaping.LiveRun])
        data: list[lifecycle.LeaseEvent] = [lifecycle.LeaseRevoked(**credentials, reason=kind)]
        for run, ended_as in reaping.endings(kind, live, shared=row["runs"] > 1).items():
            failure = lifecycle.Failure(kind=ended_as, message=self._message(row, ended_as))
            data.append(lifecycle.RunFailed(**credentials, run=run, failure=failure))
        return lease_events(data, row["id"], now)

    def _message(self, row: Any, kind: str) -> str:
        silent = reaping.abandoned(
            row["claimed_by"],
            heard=row["worker_heard"],
            warning=row["warning"],
            seconds=self.settings.orphan_timeout_seconds,
        )
        return {
            lifecycle.ORPHANED: silent,
            lifecycle.UNBEGUN: f"{silent}, and had not begun with this run of its lease",
            lifecycle.UNDELIVERED: "no worker claimed the order for "
            f"{self.settings.stale_pending_seconds:g} s",
            lifecycle.TIMED_OUT: "the run took longer than its timeout and its grace",
            lifecycle.RECALLED: "another run of the same lease took longer than its timeout and "
            "its grace",
        }[kind]
