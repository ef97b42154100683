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
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec
from headway_clock import new_id, new_token
from headway_contract import encode, subjects
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.work import RunTerms, WorkTerms, terms_of
from headway_decisions.capacity import capacity
from headway_decisions.capacity.capacity import Admitted, Candidate, Held, RateUse, Room, Verdict
from headway_decisions.capacity.packing import HAND_BACK_SECONDS
from headway_history import Record
from headway_postgres_kit import Connection, Database, StatementBatch, json_array
from headway_relay import OutboxMessage, stamped
from headway_tracing import CONTEXTS_APART, is_recording, span, trace_id, traceparent
from msgspec import Struct

from headway_dispatcher.events import own_event
from headway_dispatcher.gate.situation import (
    QueueState,
    Situation,
    group_step,
    read_queue_state,
    read_situation,
)
from headway_dispatcher.provisioning import renew_seconds
from headway_dispatcher.runs import settle
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import GATE_LOCK, HISTORY, OUTBOX, SOURCE, Times, gates
from headway_dispatcher.wakeups import Wakeups

_KEYS_AT_ONCE = 1000
# Delay before the next look at work whose row another transaction had locked.
_RETRY_LOCKED = timedelta(milliseconds=100)
# Time beyond timeout and grace in which a worker may report the end of a run itself.
_LENIENCE = 10.0


class WaitingWork(Struct, frozen=True, kw_only=True):
    """Ready work, with everything that its order needs; its input is JSON that is not decoded."""

    id: UUID
    round: int
    manifest: str | None
    group: str
    job: str
    input: msgspec.Raw | None
    input_schema: str | None
    cause: str
    due_at: datetime | None
    start_by: datetime | None
    terms: WorkTerms
    attempts: int
    traceparent: str | None
    concurrency_key: str | None
    key_active: int
    manifest_disabled: bool
    exclusive_lease: bool

    @property
    def is_last_attempt(self) -> bool:
        """Whether its retry policy allows no attempt after this one."""
        return self.attempts + 1 >= self.terms.retry.attempts

    @property
    def max_run_seconds(self) -> float:
        """Seconds from the start of the run until it must have ended."""
        return self.terms.timeout_seconds + self.terms.cancel_grace_seconds + _LENIENCE


class GateResult(Struct, frozen=True, kw_only=True):
    """The result of a pass, and the time until the next one."""

    admitted: int = 0
    held: int = 0
    expired: int = 0
    rest: float | None = None


# An order with its admitted work, in the order of its runs.
_Order = tuple[RunDispatched, list[WaitingWork]]


class Gate:
    """The gate of one dispatcher process."""

    def __init__(self, database: Database, settings: DispatcherSettings, wake: Wakeups) -> None:
        self._database = database
        self._settings = settings
        self._wake = wake

    async def run_once(self) -> GateResult:
        """Admit work once."""
        if not self._wake.gate.begin():
            # Without the lock; later changes wake the gate.
            async with self._database.acquire() as connection:
                queue = await read_queue_state(connection, self._database)
            if queue.idle:
                return GateResult(rest=_rest(queue.next_at, queue.times.schedule))
        batch = self._settings.gate_batch
        async with self._database.locked_transaction(GATE_LOCK) as connection:
            situation = await read_situation(connection, self._database, self._settings)
            queue, now, room = situation.queue, situation.now, situation.room()
            expired, ready_more, look_again_at = await _make_ready(connection, queue)
            waiting = await self._candidates(connection, room, now)
            candidates = _as_candidates(waiting, situation)
            verdicts = capacity.admit(candidates, room, more=len(waiting) == batch)
            orders = self._orders(waiting, verdicts)
            messages: list[OutboxMessage] = []
            if orders:
                messages = await _record(connection, orders, room.rate_uses(), queue.times)
            without_key = _held(verdicts, "key")
            if without_key:
                await connection.execute(gates["wait_for_key"], without_key)
        self._wake.relay.hand(messages)
        # The gate skips closed lanes; `Waits` records why.
        self._wake.waits.call()
        disabled = _held(verdicts, "manifest_disabled")
        if disabled:
            # Not under the gate's lock: it may wait for a transaction that enables a manifest.
            async with self._database.transaction() as connection:
                await connection.execute(gates["hold_disabled"], disabled)
        if any(work.start_by is not None for _, works in orders for work in works):
            self._wake.expiry.call()
        if expired:
            self._wake.relay.call()
        admitted = sum(len(works) for _, works in orders)
        more = ready_more or bool(without_key or disabled)
        more |= len(waiting) == batch and admitted > 0
        times = (queue.next_at, room.rates_free_at(), look_again_at)
        next_at = min((at for at in times if at is not None), default=None)
        if next_at is not None and next_at <= now:
            # Another transaction has locked the row.
            next_at = now + _RETRY_LOCKED
        return GateResult(
            admitted=admitted,
            held=len(waiting) - admitted,
            expired=expired,
            rest=0.0 if more else _rest(next_at, now),
        )

    async def _candidates(
        self, connection: Connection, room: Room, now: datetime
    ) -> list[WaitingWork]:
        """Lock the first work of each lane with room, in the order of the gate."""
        batch = self._settings.gate_batch
        jobs, groups = room.jobs(most=batch), room.groups(most=batch)
        if not jobs:
            return []
        rows = await connection.fetch(
            gates["candidates"],
            list(groups),
            [left.leases for left in groups.values()],
            [left.runs for left in groups.values()],
            [left.may_spare for left in groups.values()],
            list(jobs),
            [left.runs for left in jobs.values()],
            [left.idle for left in jobs.values()],
            [left.lease_size for left in jobs.values()],
            now,
            batch,
            group_step(self._settings),
        )
        return [_waiting_work(row) for row in rows]

    def _orders(self, waiting: Sequence[WaitingWork], verdicts: Sequence[Verdict]) -> list[_Order]:
        """Return an order for each admitted lease."""
        leases: dict[int, list[WaitingWork]] = {}
        for work, verdict in zip(waiting, verdicts, strict=True):
            if isinstance(verdict, Admitted):
                leases.setdefault(verdict.lease, []).append(work)
        traced = is_recording()
        orders = []
        for works in leases.values():
            order = RunDispatched(
                lease=new_id(),
                token=new_token(),
                job=works[0].job,
                heartbeat_seconds=self._settings.heartbeat_seconds,
                orphan_timeout_seconds=self._settings.orphan_timeout_seconds,
                renew_seconds=renew_seconds(self._settings),
                on_lost_contact=works[0].terms.on_lost_contact,
                hand_back_seconds=HAND_BACK_SECONDS if len(works) > 1 else None,
                runs=[_run(work, traced=traced) for work in works],
            )
            orders.append((order, works))
        return orders


async def _make_ready(
    connection: Connection, queue: QueueState
) -> tuple[int, bool, datetime | None]:
    """Settle expired work, and make work ready whose time or key has come.

    Returns the number of expired work, and whether to look again at once or at a time.
    """
    now = queue.times.schedule
    expired = released = changed = left_over = 0
    if queue.start_by is not None and queue.start_by <= now:
        rows = await connection.fetch(gates["expired"], now)
        expired = len(rows)
        if rows:
            await settle.expire(connection, sorted(row["id"] for row in rows), now=now)
    if queue.not_before is not None and queue.not_before <= now:
        released = await connection.fetchval(gates["release_due"], now)
    if queue.keys_changed or released:
        [row] = await connection.fetch(gates["offer_keys"], _KEYS_AT_ONCE)
        changed, left_over = row["changed"], row["left_over"]
    # Only a new reading shows what comes next.
    more = bool(expired or released or left_over < changed == _KEYS_AT_ONCE)
    return expired, more, now + _RETRY_LOCKED if left_over else None


def _waiting_work(row: Any) -> WaitingWork:
    columns = dict(row)
    given, terms = columns.pop("input"), columns.pop("terms")
    return WaitingWork(
        group=columns.pop("group_name"),
        input=None if given is None else msgspec.Raw(given.encode()),
        terms=_read_terms(terms),
        **columns,
    )


@lru_cache(maxsize=1000)
def _read_terms(stored: str) -> WorkTerms:
    """Decode terms; few of them differ."""
    return msgspec.json.decode(stored, type=WorkTerms)


def _as_candidates(waiting: Sequence[WaitingWork], situation: Situation) -> list[Candidate]:
    """Return the input of the decision; the size matters only for shared leases."""
    limits = situation.limits.jobs
    shares = {name for name, limit in limits.items() if limit.lease_size > 1}
    # It is not known which runs of a lost lease had begun. Work that must not be tried again shares
    # a lease only if its job says so.
    stated = {name for name, limit in limits.items() if limit.batch is not None}
    return [
        Candidate(
            work=work.id,
            group=work.group,
            job=work.job,
            key=work.concurrency_key,
            key_limit=work.terms.concurrency_limit,
            key_active=work.key_active,
            manifest_disabled=work.manifest_disabled,
            on_lost_contact=work.terms.on_lost_contact,
            size=0 if work.input is None or work.job not in shares else len(bytes(work.input)),
            exclusive_lease=work.exclusive_lease
            or (work.is_last_attempt and work.job not in stated),
        )
        for work in waiting
    ]


def _held(verdicts: Sequence[Verdict], reason: capacity.Reason) -> list[UUID]:
    return sorted(
        verdict.work
        for verdict in verdicts
        if isinstance(verdict, Held) and verdict.reason == reason
    )


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


async def _record(
    connection: Connection, orders: Sequence[_Order], uses: Sequence[RateUse], times: Times
) -> list[OutboxMessage]:
    """Record orders: leases, runs, work, history, messages, rates; returns the messages."""
    runs = [
        (order, work, run)
        for order, works in orders
        for work, run in zip(works, order.runs, strict=True)
    ]
    with span("gate", admitted=len(runs)):
        messages = stamped([_message(order, times.schedule) for order, _ in orders])
        writes = StatementBatch()
        writes.add(
            gates["dispatch"],
            [order.lease for order, _ in orders],
            [order.token for order, _ in orders],
            [order.job for order, _ in orders],
            # Real time: the age of an unclaimed lease decides about liveness.
            times.real,
            [work.id for _, work, _ in runs],
            [run.run for _, _, run in runs],
            [order.lease for order, _, _ in runs],
            [run.attempt for _, _, run in runs],
            [trace_id(run.traceparent) for _, _, run in runs],
            [work.max_run_seconds for _, work, _ in runs],
            times.schedule,
        )
        records = [_history_record(*run, times.schedule) for run in runs]
        HISTORY.append_to(writes, records, now=times.real)
        OUTBOX.add_to(writes, messages)
        if uses:
            writes.add(
                gates["write_rates"],
                [use.kind for use in uses],
                [use.name for use in uses],
                json_array(use.begun for use in uses),
                [use.frees_at for use in uses],
            )
        await writes.send(connection)
    return messages


def _message(order: RunDispatched, now: datetime) -> OutboxMessage:
    traces = [run.traceparent for run in order.runs if run.traceparent]
    context = traces[0] if traces else None
    published = own_event(order, id=order.lease, subject=order.lease, time=now, traceparent=context)
    return OutboxMessage(
        message_id=str(order.lease),
        subject=subjects.order(order.job, order.lease),
        body=encode(published),
        traceparent=CONTEXTS_APART.join(traces) or None,
    )


def _history_record(
    order: RunDispatched, work: WaitingWork, run: OrderedRun, now: datetime
) -> Record:
    """Return the history record of an ordered run, without the secret token."""
    return Record(
        event_id=str(order.lease) if len(order.runs) == 1 else f"{order.lease}.{run.run}",
        type=RunDispatched.type,
        subject=str(run.run),
        source=SOURCE,
        occurred_at=now,
        # Without the input, which the record of the work has.
        data={
            "lease": order.lease,
            "job": order.job,
            "run": run.run,
            "work": work.id,
            "round": run.round,
            "attempt": run.attempt,
            "manifest": work.manifest,
            "group": work.group,
            "cause": work.cause,
            "due_at": work.due_at,
            "max_run_seconds": work.max_run_seconds,
            "trace_id": trace_id(run.traceparent),
        },
        work=work.id,
        run=run.run,
        lease=order.lease,
    )


def _rest(moment: datetime | None, now: datetime) -> float | None:
    return None if moment is None else max(0.0, (moment - now).total_seconds())
