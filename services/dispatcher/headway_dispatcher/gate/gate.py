"""The gate: admit as much work as capacity allows, exactly.

First the lock, then the count, in statements of their own: every gate of every dispatcher
sees what the one before it admitted. Nothing else raises the number of active runs, so no
commit ever takes it above a cap.

What cannot run is not even looked at. Work whose time has not come, that waits for a key or
whose manifest is disabled is not *ready*; the gate makes it so when its time has come or the
key falls free. Ready work lies in lanes, one for each job of each group, and a lane without
room is passed over whole. A key is offered to the first who wait for it in every lane, and whoever
comes first among those that can run gets it: work that cannot keeps it from nobody.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from headway_clock import new_id, new_token
from headway_contract import encode, event, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.work import RunTerms, terms_of
from headway_decisions.capacity import capacity
from headway_decisions.capacity.capacity import Admitted, Held, RateUse, Reason, Room, Verdict
from headway_postgres_kit import Clock, Connection, Database
from headway_relay import TRACES_APART, Handover, OutboxMessage, stamped
from headway_service_kit.passes import Wakeup
from headway_tracing import is_recording, span, traceparent
from msgspec import Struct

from headway_dispatcher.gate.store import (
    GATE_LOCK,
    GateTransaction,
    Glance,
    KeysSeenTo,
    Ordered,
    Situation,
    WaitingWork,
)
from headway_dispatcher.letters import letters
from headway_dispatcher.provisioning import renew_seconds
from headway_dispatcher.runs import settle
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import SOURCE, Times, works

# How many keys are seen to in one pass.
_KEYS_AT_ONCE = 1000
# After how long work is looked at again of which somebody else had the row: they are done in a
# moment, and mostly call the gate then.
_LOOK_AGAIN = timedelta(milliseconds=100)


class GateResult(Struct, frozen=True, kw_only=True):
    """What a pass of the gate did, and how long it may rest."""

    admitted: int = 0
    held: int = 0
    expired: int = 0
    rest: float | None = None


class _MadeReady(Struct, frozen=True, kw_only=True):
    """What came of making work ready: whether there is more to do at once, or soon."""

    expired: int
    more: bool
    look_again_at: datetime | None


class Gate:
    """The gate of one dispatcher process."""

    def __init__(
        self,
        database: Database,
        settings: DispatcherSettings,
        *,
        clock: Clock,
        relay: Handover,
        waits: Wakeup,
        expiry: Wakeup | None = None,
        call: Wakeup | None = None,
    ) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._relay = relay
        self._waits = waits
        self._expiry = expiry or Wakeup()
        self._call = call or Wakeup()
        self._silence = timedelta(seconds=settings.orphan_timeout_seconds)
        self._group_step = group_step(settings)

    async def run_once(self) -> GateResult:
        """Admit what fits, once."""
        if not self._call.begin():
            glance = await self._look()
            if glance.idle:
                return GateResult(rest=_rest(glance.next_at, glance.times.schedule))
        async with self._database.locked_transaction(GATE_LOCK) as connection:
            tx = GateTransaction(connection, self._clock)
            situation = await tx.situation(
                max_active=self._settings.max_active, worker_silence=self._silence
            )
            glance, times = situation.glance, situation.glance.times
            now = times.schedule
            ready = await self._make_ready(tx, glance)
            room = Room(situation.limits, situation.load, situation.fleet, now=now)
            waiting = await self._candidates(tx, room, now)
            verdicts = capacity.admit(
                _as_candidates(waiting, situation),
                room,
                more=len(waiting) == self._settings.gate_batch,
            )
            orders = self._orders(waiting, verdicts)
            messages = await self._record(tx, times, orders, room.rate_uses()) if orders else []
            if without_key := _held(verdicts, "key"):
                await tx.wait_for_key(without_key)
        self._relay.hand(messages)
        # What is left says nothing of why, so have that found out.
        self._waits.call()
        disabled = await self._put_aside(_held(verdicts, "manifest_disabled"))
        if any(work.start_by is not None for one in orders for work in one.works):
            self._expiry.call()
        if ready.expired:
            self._relay.call()
        admitted = sum(len(one.works) for one in orders)
        more = ready.more or bool(without_key or disabled)
        more |= len(waiting) == self._settings.gate_batch and admitted > 0
        next_at = _earliest(glance.next_at, room.rates_free_at(), ready.look_again_at)
        if next_at is not None and next_at <= now:
            # A time that has come and is still here: somebody else has the row.
            next_at = now + _LOOK_AGAIN
        return GateResult(
            admitted=admitted,
            held=len(waiting) - admitted,
            expired=ready.expired,
            rest=0.0 if more else _rest(next_at, now),
        )

    async def _look(self) -> Glance:
        """See without the lock if there is anything to do; whatever comes later wakes the gate."""
        async with self._database.acquire() as connection:
            return await GateTransaction(connection, self._clock).look()

    async def _make_ready(self, tx: GateTransaction, glance: Glance) -> _MadeReady:
        """Settle what came too late, and make ready what has waited long enough."""
        now = glance.times.schedule
        expired = ripened = 0
        keys = KeysSeenTo()
        if glance.start_by is not None and glance.start_by <= now:
            expired = await _expire(tx.connection, await tx.expired(now), now)
        if glance.not_before is not None and glance.not_before <= now:
            ripened = await tx.ripen(now)
        if glance.keys_changed or ripened:
            keys = await tx.hand_out_keys(limit=_KEYS_AT_ONCE)
        return _MadeReady(
            expired=expired,
            # What comes next is only seen by a fresh look.
            more=bool(expired or ripened or keys.left_over < keys.changed == _KEYS_AT_ONCE),
            look_again_at=now + _LOOK_AGAIN if keys.left_over else None,
        )

    async def _candidates(
        self, tx: GateTransaction, room: Room, now: datetime
    ) -> list[WaitingWork]:
        batch = self._settings.gate_batch
        jobs = {job: left for job, left in room.jobs(most=batch).items() if left > 0}
        if not jobs:
            return []
        groups, idle = room.groups(most=batch), room.jobs(most=batch, spares=False)
        return await tx.candidates(
            [(name, left, room.group_may_spare(name)) for name, left in groups.items()],
            [(name, left, idle[name]) for name, left in jobs.items()],
            now=now,
            limit=batch,
            group_step=self._group_step,
        )

    def _orders(self, waiting: Sequence[WaitingWork], verdicts: Sequence[Verdict]) -> list[Ordered]:
        """The orders of what was admitted: one for each lease."""
        leases: dict[int, list[WaitingWork]] = {}
        for work, verdict in zip(waiting, verdicts, strict=True):
            if isinstance(verdict, Admitted):
                leases.setdefault(verdict.lease, []).append(work)
        traced = is_recording()
        return [self._order(works, traced=traced) for works in leases.values()]

    async def _record(
        self,
        tx: GateTransaction,
        times: Times,
        orders: Sequence[Ordered],
        uses: Sequence[RateUse],
    ) -> list[OutboxMessage]:
        """Write down what was admitted; returns what tells of it."""
        with span("gate", admitted=sum(len(one.works) for one in orders)):
            messages = stamped([_message(one, times.schedule) for one in orders])
            await tx.dispatch(orders, messages, uses, times=times)
        return messages

    async def _put_aside(self, disabled: list[UUID]) -> list[UUID]:
        """Keep work of disabled manifests out of the way.

        Not under the gate's lock: whoever enables the manifest may have to be waited for.
        """
        if disabled:
            async with self._database.transaction() as connection:
                await GateTransaction(connection, self._clock).put_aside(disabled)
        return disabled

    def _order(self, admitted: list[WaitingWork], *, traced: bool) -> Ordered:
        first = admitted[0]
        order = RunDispatched(
            lease=new_id(),
            token=new_token(),
            job=first.job,
            heartbeat_seconds=self._settings.heartbeat_seconds,
            orphan_timeout_seconds=self._settings.orphan_timeout_seconds,
            renew_seconds=renew_seconds(self._settings),
            on_lost_contact=first.terms.on_lost_contact,
            runs=[_run(work, traced=traced) for work in admitted],
        )
        return Ordered(works=admitted, order=order)


def group_step(settings: DispatcherSettings) -> timedelta:
    """How much older one step of a group's priority makes its work look.

    As much as all the steps of an entry's: between groups whose work is of the same age, the
    group's priority decides, and age does in the end.
    """
    return timedelta(seconds=settings.rank_step_seconds) * 32


def _held(verdicts: Sequence[Verdict], reason: Reason) -> list[UUID]:
    return sorted(one.work for one in verdicts if isinstance(one, Held) and one.reason == reason)


def _as_candidates(
    waiting: Sequence[WaitingWork], situation: Situation
) -> list[capacity.Candidate]:
    jobs = situation.limits.jobs
    return [
        work.candidate(shares=work.job in jobs and jobs[work.job].batch > 1) for work in waiting
    ]


def _run(work: WaitingWork, *, traced: bool) -> OrderedRun:
    run, context = new_id(), work.traceparent
    if traced:
        with span("admit", parent=context, work=str(work.id), run=str(run)):
            context = traceparent() or context
    return OrderedRun(
        **terms_of(work.terms, RunTerms),
        run=run,
        work=work.id,
        round=work.round,
        attempt=work.attempts + 1,
        attempts=work.terms.retry.attempts,
        manifest=work.manifest,
        group=work.group,
        cause=work.cause,
        due_at=work.due_at,
        input=work.input,
        input_schema=work.input_schema,
        traceparent=context,
    )


async def _expire(connection: Connection, late: Sequence[UUID], now: datetime) -> int:
    if late:
        rows = await connection.fetch(works["lock"], late)
        waited_for = await settle.expire(connection, rows, now=now)
        await letters.resume_at_once(connection, waited_for, now=now)
    return len(late)


def _message(ordered: Ordered, now: datetime) -> OutboxMessage:
    order = ordered.order
    traces = [run.traceparent for run in order.runs if run.traceparent]
    return OutboxMessage(
        message_id=str(order.lease),
        subject=subjects.order(order.job, order.lease),
        body=encode(
            event(
                order,
                id=order.lease,
                source=SOURCE,
                subject=order.lease,
                time=now,
                traceparent=traces[0] if traces else None,
            )
        ),
        traceparent=TRACES_APART.join(traces) or None,
    )


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _rest(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())
