"""The gate: admit as much work as capacity allows, and never more.

It takes the lock first and counts in a later statement, so every gate of every dispatcher sees the
admissions of the one before. Nothing else raises the number of active runs.

The gate reads only *ready* work. Work is not ready before its time, while it waits for a key, and
while its manifest is disabled. Ready work forms lanes, one for each job of each group, and the gate
skips a lane without room as a whole. A free key is offered to the first work of every lane that
waits for it, so that work which cannot run does not block the key.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from headway_clock import monotonic, new_id, new_token
from headway_contract import encode, event, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.work import RunTerms, terms_of
from headway_decisions.capacity import capacity
from headway_decisions.capacity.capacity import Admitted, Held, RateUse, Reason, Room, Verdict
from headway_postgres_kit import Clock, Database
from headway_relay import Handover, OutboxMessage, stamped
from headway_service_kit.passes import Wakeup
from headway_tracing import CONTEXTS_APART, is_recording, span, traceparent
from msgspec import Struct

from headway_dispatcher.gate.store import (
    GATE_LOCK,
    GateTransaction,
    Glance,
    KeyChanges,
    Ordered,
    Situation,
    WaitingWork,
)
from headway_dispatcher.provisioning import renew_seconds
from headway_dispatcher.runs import settle
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import SOURCE, Times

_KEYS_AT_ONCE = 1000
# Delay before the next look at work whose row another transaction had locked.
_RETRY_LOCKED = timedelta(milliseconds=100)
# Under load the gate runs all the time; people do not read faster.
_SECONDS_BETWEEN_WAITS = 1.0


class GateResult(Struct, frozen=True, kw_only=True):
    """The result of a pass, and the time until the next one."""

    admitted: int = 0
    held: int = 0
    expired: int = 0
    rest: float | None = None


class _MadeReady(Struct, frozen=True, kw_only=True):
    """The number of expired work, and whether to look again at once or later."""

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
        """Admit work once."""
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
        # The gate skips closed lanes; `Waits` records why.
        self._waits.call()
        disabled = await self._hold_disabled(_held(verdicts, "manifest_disabled"))
        if any(work.start_by is not None for order in orders for work in order.works):
            self._expiry.call()
        if ready.expired:
            self._relay.call()
        admitted = sum(len(order.works) for order in orders)
        more = ready.more or bool(without_key or disabled)
        more |= len(waiting) == self._settings.gate_batch and admitted > 0
        next_at = _earliest(glance.next_at, room.rates_free_at(), ready.look_again_at)
        if next_at is not None and next_at <= now:
            # Another transaction has locked the row.
            next_at = now + _RETRY_LOCKED
        return GateResult(
            admitted=admitted,
            held=len(waiting) - admitted,
            expired=ready.expired,
            rest=0.0 if more else _rest(next_at, now),
        )

    async def _look(self) -> Glance:
        """Look for work without the lock; later changes wake the gate."""
        async with self._database.acquire() as connection:
            return await GateTransaction(connection, self._clock).look()

    async def _make_ready(self, tx: GateTransaction, glance: Glance) -> _MadeReady:
        """Settle expired work, and make work ready whose time or key has come."""
        now = glance.times.schedule
        expired = released = 0
        keys = KeyChanges()
        if glance.start_by is not None and glance.start_by <= now:
            late = await tx.expired(now)
            expired = len(late)
            if late:
                await settle.expire(tx.connection, late, now=now)
        if glance.not_before is not None and glance.not_before <= now:
            released = await tx.release_due(now)
        if glance.keys_changed or released:
            keys = await tx.offer_keys(limit=_KEYS_AT_ONCE)
        return _MadeReady(
            expired=expired,
            # Only a new reading shows what comes next.
            more=bool(expired or released or keys.left_over < keys.changed == _KEYS_AT_ONCE),
            look_again_at=now + _RETRY_LOCKED if keys.left_over else None,
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
        """Return an order for each admitted lease."""
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
        """Record the orders; returns their messages."""
        with span("gate", admitted=sum(len(order.works) for order in orders)):
            messages = stamped([_message(order, times.schedule) for order in orders])
            await tx.dispatch(orders, messages, uses, times=times)
        return messages

    async def _hold_disabled(self, disabled: list[UUID]) -> list[UUID]:
        """Hold work of disabled manifests.

        Not under the gate's lock, because it may wait for a transaction that enables a manifest.
        """
        if disabled:
            async with self._database.transaction() as connection:
                await GateTransaction(connection, self._clock).hold_disabled(disabled)
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


class Waits:
    """Records why ready work waits, lane by lane, for one dispatcher process.

    It runs after the gate and without its lock: people read the reasons, no decision does. The
    row of other waiting work has its own reason; the view `dispatcher.waiting` shows both.
    """

    def __init__(self, database: Database, settings: DispatcherSettings, *, clock: Clock) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._may_run_at = 0.0

    async def run_once(self) -> float | None:
        """Record the closed lanes, at most once a second."""
        early = self._may_run_at - monotonic()
        if early > 0:
            return early
        self._may_run_at = monotonic() + _SECONDS_BETWEEN_WAITS
        async with self._database.transaction() as connection:
            tx = GateTransaction(connection, self._clock)
            lanes = await tx.lanes()
            if lanes is None:
                return None
            situation = await tx.situation(
                max_active=self._settings.max_active,
                worker_silence=timedelta(seconds=self._settings.orphan_timeout_seconds),
            )
            now = situation.glance.times.schedule
            room = Room(situation.limits, situation.load, situation.fleet, now=now)
            closed = [
                (group, job, reason)
                for group, job in lanes
                if (reason := room.waits_for(group, job)) is not None
            ]
            await tx.close_lanes(closed, now=now)
        return None


def group_step(settings: DispatcherSettings) -> timedelta:
    """Return the age that one step of a group's priority is worth.

    It outweighs all steps of a manifest's priority. In the end age decides.
    """
    return timedelta(seconds=settings.rank_step_seconds) * 32


def _held(verdicts: Sequence[Verdict], reason: Reason) -> list[UUID]:
    return sorted(
        verdict.work
        for verdict in verdicts
        if isinstance(verdict, Held) and verdict.reason == reason
    )


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
        traceparent=CONTEXTS_APART.join(traces) or None,
    )


def _earliest(*moments: datetime | None) -> datetime | None:
    return min((moment for moment in moments if moment is not None), default=None)


def _rest(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())
