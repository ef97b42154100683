"""The reads and writes of the gate."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.work import WorkTerms
from headway_decisions.capacity.capacity import (
    Candidate,
    GroupLimit,
    JobLimit,
    Limits,
    Load,
    RateUse,
)
from headway_decisions.capacity.slots import Worker
from headway_history import Record
from headway_postgres_kit import DATABASE_CLOCK, Clock, Connection, StatementBatch, json_array
from headway_relay import OutboxMessage
from headway_tracing import trace_id
from msgspec import Struct

from headway_dispatcher.store import HISTORY, OUTBOX, SOURCE, Times, gates

# One gate at a time, over all dispatchers. It is taken before the statement that counts: in the
# same statement the snapshot would be older than the lock.
GATE_LOCK = 0x48570010
_LANES_LOCK = 0x48570012
# Time beyond timeout and grace in which a worker may report the end of a run itself.
_LENIENCE = 10.0


class WaitingWork(Struct, frozen=True, kw_only=True):
    """Ready work, with everything that its order needs."""

    id: UUID
    round: int
    manifest_id: UUID | None
    manifest: str | None
    group: str
    job: str
    input: Any
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
    def max_run_seconds(self) -> float:
        """Seconds from the start of the run until it must have ended."""
        return self.terms.timeout_seconds + self.terms.cancel_grace_seconds + _LENIENCE

    def candidate(self, *, shares: bool) -> Candidate:
        """Return the input of the decision; the size matters only for shared leases."""
        return Candidate(
            work=self.id,
            group=self.group,
            job=self.job,
            key=self.concurrency_key,
            key_limit=self.terms.concurrency_limit,
            key_active=self.key_active,
            manifest_disabled=self.manifest_disabled,
            on_lost_contact=self.terms.on_lost_contact,
            size=len(msgspec.json.encode(self.input)) if shares else 0,
            exclusive_lease=self.exclusive_lease,
        )


class Ordered(Struct, frozen=True, kw_only=True):
    """An order and its admitted work, in the order of its runs."""

    order: RunDispatched
    works: list[WaitingWork]

    @property
    def runs(self) -> list[tuple[WaitingWork, OrderedRun]]:
        """Each piece of work with its run."""
        return list(zip(self.works, self.order.runs, strict=True))


class Glance(Struct, frozen=True, kw_only=True):
    """The state of the queue without counts.

    `not_before` and `start_by` are the earliest of waiting work.
    """

    times: Times
    keys_changed: bool
    not_before: datetime | None
    start_by: datetime | None
    ready: bool = True

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

    glance: Glance
    load: Load
    limits: Limits
    fleet: list[Worker]


class KeyChanges(Struct, frozen=True, kw_only=True):
    """The number of handled key changes, and of keys with a row that was locked."""

    changed: int = 0
    left_over: int = 0


class GateTransaction:
    """The reads and writes of one pass of the gate."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self.connection = connection
        self._clock = clock

    async def look(self) -> Glance:
        """Read the state of the queue without the lock."""
        [row] = await self.connection.fetch(gates["look"])
        return await self._glance(row, ready=row["ready"])

    async def situation(self, *, max_active: int, worker_silence: timedelta) -> Situation:
        """Count active runs and read limits and fleet."""
        [row] = await self.connection.fetch(gates["situation"], worker_silence)
        active: dict[tuple[str, str], int] = {}
        leases: dict[str, int] = {}
        for load in row["active"] or ():
            if load["group_name"] is None:
                leases[load["job"]] = load["leases_on_fleet"]
            else:
                active[load["group_name"], load["job"]] = load["runs"]
        return Situation(
            glance=await self._glance(row),
            load=Load(active=active, leases_on_fleet=leases),
            limits=Limits(
                max_active=max_active,
                groups=msgspec.convert(row["groups"] or {}, dict[str, GroupLimit]),
                jobs=msgspec.convert(row["jobs"] or {}, dict[str, JobLimit]),
            ),
            fleet=msgspec.convert(row["fleet"] or [], list[Worker]),
        )

    async def expired(self, now: datetime) -> list[UUID]:
        """Lock work that has not begun in time."""
        rows = await self.connection.fetch(gates["expired"], now)
        return sorted(row["id"] for row in rows)

    async def release_due(self, now: datetime) -> int:
        """Release work whose time has come: it is ready, or waits for its key."""
        released: int = await self.connection.fetchval(gates["release_due"], now)
        return released

    async def offer_keys(self, *, limit: int) -> KeyChanges:
        """Make work ready that waits for a key with room."""
        [row] = await self.connection.fetch(gates["offer_keys"], limit)
        return KeyChanges(changed=row["changed"], left_over=row["left_over"])

    async def candidates(
        self,
        groups: Sequence[tuple[str, int, bool]],
        jobs: Sequence[tuple[str, int, int]],
        *,
        now: datetime,
        limit: int,
        group_step: timedelta,
    ) -> list[WaitingWork]:
        """Lock the first work of each lane with room, in the order of the gate.

        `groups` have limits, each with its room and whether that includes spare orders; `jobs`
        have workers, each with its room and the part of it for idle slots.
        """
        rows = await self.connection.fetch(
            gates["candidates"],
            *([group[column] for group in groups] for column in range(3)),
            *([job[column] for job in jobs] for column in range(3)),
            now,
            limit,
            group_step,
        )
        return [_waiting_work(row) for row in rows]

    async def dispatch(
        self,
        orders: Sequence[Ordered],
        messages: Sequence[OutboxMessage],
        uses: Sequence[RateUse],
        *,
        times: Times,
    ) -> None:
        """Record orders: leases, runs, work, history, messages, and the use of rates."""
        runs = [(ordered.order, work, run) for ordered in orders for work, run in ordered.runs]
        writes = StatementBatch()
        writes.add(
            gates["dispatch"],
            [ordered.order.lease for ordered in orders],
            [ordered.order.token for ordered in orders],
            [ordered.order.job for ordered in orders],
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
        records = [_record(order, work, run, times.schedule) for order, work, run in runs]
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
        await writes.send(self.connection)

    async def wait_for_key(self, works: Sequence[UUID]) -> None:
        """Hold candidates whose key has no room."""
        await self.connection.execute(gates["wait_for_key"], works)

    async def hold_disabled(self, works: Sequence[UUID]) -> None:
        """Hold work of disabled manifests."""
        await self.connection.execute(gates["hold_disabled"], works)

    async def lanes(self) -> list[tuple[str, str]] | None:
        """Read the lanes with ready work; `None` if another dispatcher does."""
        if not await self.connection.fetchval(gates["lock_lanes"], _LANES_LOCK):
            return None
        rows = await self.connection.fetch(gates["lanes"])
        return [(row["group_name"], row["job"]) for row in rows]

    async def close_lanes(self, closed: Sequence[tuple[str, str, str]], *, now: datetime) -> None:
        """Record the lanes without room, each with a reason."""
        await self.connection.execute(
            gates["close_lanes"],
            [group for group, _, _ in closed],
            [job for _, job, _ in closed],
            [reason for _, _, reason in closed],
            now,
        )

    async def _glance(self, row: Any, *, ready: bool = True) -> Glance:
        real: datetime = row["now"]
        schedule = real if self._clock is DATABASE_CLOCK else await self._clock.now(self.connection)
        return Glance(
            times=Times(real=real, schedule=schedule),
            keys_changed=row["keys_changed"],
            not_before=row["not_before"],
            start_by=row["start_by"],
            ready=ready,
        )


def _record(order: RunDispatched, work: WaitingWork, run: OrderedRun, now: datetime) -> Record:
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


def _waiting_work(row: Any) -> WaitingWork:
    return WaitingWork(
        id=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        job=row["job"],
        input=row["input"],
        input_schema=row["input_schema"],
        cause=row["cause"],
        due_at=row["due_at"],
        start_by=row["start_by"],
        terms=msgspec.convert(row["terms"], WorkTerms),
        attempts=row["attempts"],
        traceparent=row["traceparent"],
        concurrency_key=row["concurrency_key"],
        key_active=row["key_active"],
        manifest_disabled=row["manifest_disabled"],
        exclusive_lease=row["exclusive_lease"],
    )
