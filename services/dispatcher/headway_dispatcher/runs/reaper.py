"""The reaper: take leases away from workers that fell silent, or cannot stop a run.

It acts only on good evidence. Nobody must have heard of the lease for the orphan timeout,
and the reaper's own heartbeat, which travels the same way as a worker's, must have been
heard all that time: a dispatcher that was itself cut off reaps nobody. Nor is an order given up
that nobody claims while all who could are busy. It fences with the
sequence that was last projected, so if the worker has spoken since, the broker refuses: a
projector that lags behind cannot get a finished run killed.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import msgspec
from headway_contract import Event, subjects
from headway_contract.lifecycle import (
    ORPHANED,
    RECALLED,
    TIMED_OUT,
    UNBEGUN,
    UNDELIVERED,
    Failure,
    LeaseEvent,
    LeaseRevoked,
    RunFailed,
)
from headway_decisions.capacity.slots import Worker
from headway_decisions.runs.reaping import (
    LiveRun,
    Silence,
    Witness,
    abandoned,
    endings,
    jobs_that_wait_their_turn,
)
from headway_jetstream_kit import Broker, Refused, Stored
from headway_jetstream_kit.provisioning import consumer_info
from headway_postgres_kit import Database
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.runs.fencing import publish_fenced, spoken, withdraw_order
from headway_dispatcher.runs.leases import last_stored
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import leases, workers

logger = logging.getLogger(__name__)

BATCH = 100
# How long whoever has a slot again may take to claim what lies ready for it.
_A_MOMENT = timedelta(seconds=5)


class ReaperResult(Struct, frozen=True, kw_only=True):
    """What a pass of the reaper did."""

    trusted: bool
    silent: int = 0
    revoked: int = 0
    # The same by the reason.
    reasons: Mapping[str, int] = MappingProxyType({})


class Reaper:
    """The reaper of one dispatcher process."""

    def __init__(
        self, database: Database, broker: Broker, settings: DispatcherSettings, *, name: str
    ) -> None:
        self._database = database
        self._broker = broker
        self._settings = settings
        self._name = name
        # When all workers that serve a job were last seen to be full.
        self._full_at: dict[str, datetime] = {}

    async def run_once(self) -> ReaperResult:
        """Revoke the leases of silent workers, and orders that nobody wanted."""
        async with self._database.acquire() as connection:
            now = await store.read_now(connection)
            witness = await store.read_witness(connection, self._name)
            if witness is None or not self._may_trust(witness, now):
                return ReaperResult(trusted=False)
            heard_after = now - timedelta(seconds=self._settings.orphan_timeout_seconds)
            serving = await connection.fetch(workers["serving"], heard_after)
            fleet = msgspec.convert([dict(row) for row in serving], list[Worker])
            silent = await connection.fetch(
                leases["silent"],
                heard_after,
                now - timedelta(seconds=self._settings.stale_pending_seconds),
                now,
                BATCH,
                self._wait_their_turn(fleet, now),
            )
            await connection.execute(workers["note_gone"], heard_after)
            await connection.execute(workers["forget_witnesses"], now - timedelta(days=1))
        revoked = await asyncio.gather(*(self._revoke(row, now) for row in silent))
        reasons = Counter(row["kind"] for row, gone in zip(silent, revoked, strict=True) if gone)
        return ReaperResult(trusted=True, silent=len(silent), revoked=sum(revoked), reasons=reasons)

    def _wait_their_turn(self, fleet: Sequence[Worker], now: datetime) -> list[str]:
        """Jobs whose workers are all full, or were a moment ago."""
        self._full_at |= dict.fromkeys(jobs_that_wait_their_turn(fleet), now)
        self._full_at = {job: at for job, at in self._full_at.items() if now - at < _A_MOMENT}
        return sorted(self._full_at)

    def _may_trust(self, witness: Witness, now: datetime) -> bool:
        """Whether we would have heard a worker that spoke."""
        return witness.would_have_heard(
            now,
            throughout=timedelta(seconds=self._settings.orphan_timeout_seconds),
            gap=timedelta(seconds=3 * self._settings.heartbeat_seconds),
        )

    async def _revoke(self, row: Any, now: datetime) -> bool:
        kind: Silence = row["kind"]
        with span("revoke", lease=str(row["id"]), reason=kind):
            events = self._words(row, kind, now)
            answer = await publish_fenced(self._broker, row["id"], events, expected=row["sequence"])
            if isinstance(answer, Refused):
                expected = await self._expected_instead(row)
                if expected is not None:
                    answer = await publish_fenced(
                        self._broker, row["id"], events, expected=expected
                    )
            if not isinstance(answer, Stored):
                logger.debug("lease %s not revoked: %s", row["id"], answer)
                return False
            await withdraw_order(self._broker, row["job"], row["id"])
        logger.warning("lease %s of %s revoked: %s", row["id"], row["claimed_by"], kind)
        return True

    async def _expected_instead(self, row: Any) -> int | None:
        """What to expect after a refusal, or none if the worker may have spoken after all.

        The stream may have forgotten the lease. Or its chain is broken: a worker published
        past the fence, or a message was put aside. Then the last stored sequence will do,
        provided that the projector has seen everything up to it and left the lease alive.
        """
        stored = await last_stored(self._broker, row["id"])
        if stored is None:
            return 0
        projector = await consumer_info(
            self._broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER
        )
        if projector is None or projector["ack_floor"]["stream_seq"] < stored.sequence:
            return None
        async with self._database.acquire() as connection:
            known = await connection.fetchrow(leases["state_of"], row["id"])
        # Somebody who has claimed it since is not the one who fell silent.
        if known is None or known["ended_at"] or known["claimed_by"] != row["claimed_by"]:
            return None
        return stored.sequence

    def _words(self, row: Any, kind: Silence, now: datetime) -> list[Event]:
        """The revocation, and the end of each run that was still live."""
        credentials = {"lease": row["id"], "token": row["token"], "nonce": self._name}
        live = msgspec.convert(row["live_runs"], list[LiveRun])
        words: list[LeaseEvent] = [LeaseRevoked(**credentials, reason=kind)]
        for run, ended_as in endings(kind, live, shared=row["runs"] > 1).items():
            failure = Failure(kind=ended_as, message=self._why(row, ended_as))
            words.append(RunFailed(**credentials, run=run, failure=failure))
        return spoken(words, row["id"], now)

    def _why(self, row: Any, kind: str) -> str:
        silent = abandoned(
            row["claimed_by"],
            heard=row["worker_heard"],
            warning=row["warning"],
            seconds=self._settings.orphan_timeout_seconds,
        )
        return {
            ORPHANED: silent,
            UNBEGUN: f"{silent}, and had not begun with this run of its lease",
            UNDELIVERED: "no worker claimed the order for "
            f"{self._settings.stale_pending_seconds:g} s",
            TIMED_OUT: "the run took longer than its timeout and its grace",
            RECALLED: "another run of the same lease took longer than its timeout and its grace",
        }[kind]
