"""The gate: admit as much work as capacity allows, exactly.

First the lock, then the count, in statements of their own: every gate of every dispatcher
sees what the one before it admitted. Nothing else raises the number of active runs, so no
commit ever takes it above a cap.
"""

import logging
from datetime import datetime, timedelta

from headway_clock import new_id, new_token
from headway_contract import encode, event, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_decisions import capacity
from headway_decisions.capacity import Admitted, Held
from headway_postgres_kit import Clock, Database
from headway_relay import OutboxMessage
from headway_service_kit.passes import Wakeup
from headway_tracing import span, traceparent
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.gate_store import GateTransaction, Ordered, WaitingWork
from headway_dispatcher.provisioning import MAX_AGE_SECONDS
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import OUTBOX, SOURCE

logger = logging.getLogger(__name__)

BATCH = 200


class GateResult(Struct, frozen=True, kw_only=True):
    """What a pass of the gate did, and how long it may rest."""

    admitted: int
    held: int
    rest: float | None


class Gate:
    """The gate of one dispatcher process."""

    def __init__(
        self,
        database: Database,
        settings: DispatcherSettings,
        *,
        clock: Clock,
        relay: Wakeup,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._relay = relay

    async def run_once(self) -> GateResult:
        """Admit what fits, once."""
        idle = await self._idle()
        if idle is not None:
            return idle
        async with self._database.transaction() as connection:
            tx = GateTransaction(connection)
            await tx.lock()
            times = await store.read_times(connection, self._clock)
            now = times.schedule
            situation = await tx.situation(
                times.real, worker_silence=timedelta(seconds=self._settings.orphan_timeout_seconds)
            )
            rooms, _ = capacity.rooms(
                situation.load, self._settings.max_active, situation.limits, most=BATCH
            )
            waiting = await tx.candidates(situation, rooms, now=now, limit=BATCH)
            verdicts = capacity.admit(
                [one.candidate for one in waiting],
                load=situation.load,
                max_active=self._settings.max_active,
                limits=situation.limits,
                fleet=situation.fleet,
            )
            admitted = {verdict.work for verdict in verdicts if isinstance(verdict, Admitted)}
            held = [verdict for verdict in verdicts if isinstance(verdict, Held)]
            ordered = [self._order(one) for one in waiting if one.id in admitted]
            if ordered:
                with span("gate", admitted=len(ordered), held=len(held)):
                    ordered = await tx.dispatch(ordered, times=times)
                    await OUTBOX.add(connection, [_message(one, now) for one in ordered])
            await tx.hold(held)
            rest = _rest(await tx.next_not_before(now), now)
        if ordered:
            self._relay.call()
        full_batch = len(waiting) == BATCH and bool(ordered)
        return GateResult(admitted=len(ordered), held=len(held), rest=0.0 if full_batch else rest)

    async def _idle(self) -> GateResult | None:
        """How long to rest if nothing wants to run now; looked up without the lock.

        Whatever comes after this look wakes the gate again.
        """
        async with self._database.acquire() as connection:
            now = await self._clock.now(connection)
            tx = GateTransaction(connection)
            earliest = await tx.earliest()
        if earliest is not None and earliest <= now:
            return None
        return GateResult(admitted=0, held=0, rest=_rest(earliest, now))

    def _order(self, work: WaitingWork) -> Ordered:
        run = new_id()
        with span("admit", parent=work.traceparent, work=str(work.id), run=str(run)):
            context = traceparent() or work.traceparent
        order = RunDispatched(
            lease=new_id(),
            token=new_token(),
            job=work.job,
            heartbeat_seconds=self._settings.heartbeat_seconds,
            orphan_timeout_seconds=self._settings.orphan_timeout_seconds,
            renew_seconds=MAX_AGE_SECONDS / 4,
            on_lost_contact=work.on_lost_contact,
            runs=[
                OrderedRun(
                    run=run,
                    work=work.id,
                    round=work.round,
                    attempt=work.attempts + 1,
                    attempts=work.retry.attempts,
                    manifest=work.manifest,
                    group=work.group,
                    cause=work.cause,
                    due_at=work.due_at,
                    input=work.input,
                    input_schema=work.input_schema,
                    timeout_seconds=work.timeout_seconds,
                    cancel_grace_seconds=work.cancel_grace_seconds,
                    traceparent=context,
                )
            ],
        )
        return Ordered(work=work, order=order)


def _message(ordered: Ordered, now: datetime) -> OutboxMessage:
    lease = ordered.order.lease
    return OutboxMessage(
        message_id=str(lease),
        subject=subjects.order(ordered.order.job, lease),
        body=encode(
            event(
                ordered.order,
                id=lease,
                source=SOURCE,
                subject=lease,
                time=now,
                traceparent=ordered.run.traceparent,
            )
        ),
        traceparent=ordered.run.traceparent,
    )


def _rest(next_not_before: datetime | None, now: datetime) -> float | None:
    return None if next_not_before is None else max(0.0, (next_not_before - now).total_seconds())
