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
from headway_contract.work import WorkTerms
from headway_decisions.capacity import capacity
from headway_decisions.capacity.capacity import Candidate, Held, Load, RateUse, Room, Verdict
from headway_decisions.capacity.limits import GroupLimit, JobLimit, Limits
from headway_decisions.capacity.slots import Worker
from headway_postgres_kit import Connection, Database, StatementBatch, json_array
from headway_relay import OutboxMessage, stamped
from headway_service_kit.passes import seconds_until
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.gate.orders import Order, WaitingWork, history_record, message_of, orders_of
from headway_dispatcher.runs import settle
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import GATE_LOCK, HISTORY, OUTBOX, Times, gates
from headway_dispatcher.wakeups import Wakeups

_KEYS_AT_ONCE = 1000
# Delay before the next look at work whose row another transaction had locked.
_RETRY_LOCKED = timedelta(milliseconds=100)

_INPUT, _TERMS = map(WaitingWork.__struct_fields__.index, ("input", "terms"))


class QueueState(Struct, frozen=True, kw_only=True):
    """The state of the queue without counts.

    `not_before` and `start_by` are the earliest of waiting work.
    """

    times: Times
    keys_changed: bool
    not_before: datetime | None
    start_by: datetime | None
    ready: bool

    @property
    def next_at(self) -> datetime | None:
        """When work becomes ready or expires by itself."""
        return min((at for at in (self.not_before, self.start_by) if at is not None), default=None)

    @property
    def idle(self) -> bool:
        """Whether the gate has nothing to do now."""
        next_at = self.next_at
        is_time = next_at is not None and next_at <= self.times.schedule
        return not (self.ready or self.keys_changed or is_time)


class Situation(Struct, frozen=True, kw_only=True):
    """Load, limits and fleet, before the gate reads any work."""

    queue: QueueState
    load: Load
    limits: Limits
    fleet: list[Worker]

    @property
    def now(self) -> datetime:
        """The schedule time."""
        return self.queue.times.schedule

    def room(self) -> Room:
        """Return the room for further runs."""
        return Room(self.limits, self.load, self.fleet, now=self.now)


async def read_queue_state(connection: Connection, database: Database) -> QueueState:
    """Read the state of the queue, without the gate's lock."""
    [row] = await connection.fetch(gates["look"])
    return await _queue_state(connection, database, row)


async def read_situation(
    connection: Connection, database: Database, settings: DispatcherSettings
) -> Situation:
    """Count active leases and read limits and fleet, in one statement."""
    silence = timedelta(seconds=settings.orphan_timeout_seconds)
    [row] = await connection.fetch(gates["situation"], silence)
    return Situation(
        queue=await _queue_state(connection, database, row),
        load=Load(
            groups=row["active_groups"] or {},
            jobs=row["active_jobs"] or {},
            leases_on_fleet=row["leases_on_fleet"] or {},
        ),
        limits=Limits(
            max_active=settings.max_active,
            groups=msgspec.convert(row["groups"] or {}, dict[str, GroupLimit]),
            jobs=msgspec.convert(row["jobs"] or {}, dict[str, JobLimit]),
        ),
        fleet=msgspec.convert(row["fleet"] or [], list[Worker]),
    )


async def _queue_state(connection: Connection, database: Database, row: Any) -> QueueState:
    return QueueState(
        times=await store.read_times(connection, database, real=row["now"]),
        keys_changed=row["keys_changed"],
        not_before=row["not_before"],
        start_by=row["start_by"],
        ready=row.get("ready", True),
    )


class GateResult(Struct, frozen=True, kw_only=True):
    """The result of a pass, and the time until the next one."""

    admitted: int = 0
    held: int = 0
    expired: int = 0
    rest: float | None = None


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
                return GateResult(rest=seconds_until(queue.next_at, queue.times.schedule))
        batch = self._settings.gate_batch
        async with self._database.locked_transaction(GATE_LOCK) as connection:
            situation = await read_situation(connection, self._database, self._settings)
            queue, now, room = situation.queue, situation.now, situation.room()
            expired, ready_more, look_again_at = await _make_ready(connection, queue)
            waiting, locked_at = await self._candidates(connection, room, now)
            candidates = _as_candidates(waiting, situation)
            verdicts = capacity.admit(candidates, room, more=len(waiting) == batch)
            orders = orders_of(waiting, verdicts, self._settings)
            messages: list[OutboxMessage] = []
            times = queue.times
            if orders:
                # After the lock: a run that has ended meanwhile may have freed this work.
                times = await store.read_times(connection, self._database, real=locked_at)
                messages = await _record(connection, orders, room.rate_uses(times.schedule), times)
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
        looks = (queue.next_at, room.rates_free_at(times.schedule), look_again_at)
        next_at = min((at for at in looks if at is not None), default=None)
        if next_at is not None and next_at <= now:
            # Another transaction has locked the row.
            next_at = now + _RETRY_LOCKED
        return GateResult(
            admitted=admitted,
            held=len(waiting) - admitted,
            expired=expired,
            rest=0.0 if more else seconds_until(next_at, now),
        )

    async def _candidates(
        self, connection: Connection, room: Room, now: datetime
    ) -> tuple[list[WaitingWork], datetime | None]:
        """Lock the first work of each lane with room, in order; return also the time then."""
        batch = self._settings.gate_batch
        jobs, groups = room.jobs(most=batch), room.groups(most=batch)
        if not jobs:
            return [], None
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
        return [_waiting_work(row) for row in rows], rows[-1]["locked_at"] if rows else None


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
    *values, _ = row
    given = values[_INPUT]
    values[_INPUT] = None if given is None else msgspec.Raw(given.encode())
    values[_TERMS] = _read_terms(values[_TERMS])
    return WaitingWork(*values)


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


async def _record(
    connection: Connection, orders: Sequence[Order], uses: Sequence[RateUse], times: Times
) -> list[OutboxMessage]:
    """Record orders: leases, runs, work, history, messages, rates; returns the messages."""
    runs = [
        (order, work, run)
        for order, works in orders
        for work, run in zip(works, order.runs, strict=True)
    ]
    with span("gate", admitted=len(runs)):
        messages = stamped([message_of(order, times.schedule) for order, _ in orders])
        writes = StatementBatch()
        writes.add(
            gates["dispatch"],
            [order.lease for order, _ in orders],
            [order.token for order, _ in orders],
            [order.job for order, _ in orders],
            # Real time: the age of an unclaimed lease decides about liveness.
            times.real,
            times.schedule,
            [work.id for _, work, _ in runs],
            [run.run for _, _, run in runs],
            [order.lease for order, _, _ in runs],
        )
        records = [history_record(order, works, times.schedule) for order, works in orders]
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


def group_step(settings: DispatcherSettings) -> timedelta:
    """Return the age that one step of a group's priority is worth.

    It outweighs all steps of a manifest's priority. In the end age decides.
    """
    return timedelta(seconds=settings.rank_step_seconds) * 32
