"""What the gate reads and writes."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.work import RetryPolicy
from headway_decisions.capacity import (
    Candidate,
    GroupLimit,
    Held,
    Load,
    Worker,
    job_rooms,
)
from headway_history import Record
from headway_postgres_kit import Connection
from headway_tracing import trace_id
from msgspec import Struct

from headway_dispatcher.store import HISTORY, SOURCE, Times, gates

GATE_LOCK = 0x48570010
_EXPLAINED_AT_ONCE = 1000
# What a worker gets on top of timeout and grace to tell the end of a run by itself.
_LENIENCE = 10.0


class WaitingWork(Struct, frozen=True, kw_only=True):
    """Work that could run, with all that its order will say."""

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
    retry: RetryPolicy
    timeout_seconds: float
    cancel_grace_seconds: float
    on_lost_contact: str
    attempts: int
    traceparent: str | None

    @property
    def patience_seconds(self) -> float:
        """How long after its start the run must have ended."""
        return self.timeout_seconds + self.cancel_grace_seconds + _LENIENCE

    @property
    def candidate(self) -> Candidate:
        """What the decision needs of it."""
        return Candidate(work=self.id, group=self.group, job=self.job)


class Ordered(Struct, frozen=True, kw_only=True):
    """Work that was admitted, and the order made of it."""

    work: WaitingWork
    order: RunDispatched

    @property
    def run(self) -> OrderedRun:
        """The one run of the order."""
        return self.order.runs[0]


class Situation(Struct, frozen=True, kw_only=True):
    """What the gate knows before it looks at any work."""

    load: Load
    limits: dict[str, GroupLimit]
    fleet: list[Worker]

    @property
    def jobs(self) -> set[str]:
        """The jobs that live workers serve."""
        return {job for worker in self.fleet for job in worker.jobs}

    @property
    def jobs_with_room(self) -> set[str]:
        """Those of them of which the workers can take more."""
        return {job for job, room in job_rooms(self.load, self.fleet).items() if room > 0}


class GateTransaction:
    """The reads and writes of one pass of the gate."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def lock(self) -> None:
        """Wait for the gate's lock, before anything is counted."""
        await self.connection.execute(gates["lock"], GATE_LOCK)

    async def situation(self, now: datetime, *, worker_silence: timedelta) -> Situation:
        """Count what runs, and who is there to run more; `now` is real time."""
        heard_since = now - worker_silence
        active = await self.connection.fetch(gates["active"], heard_since)
        by_group: dict[str, int] = {}
        by_job: dict[str, int] = {}
        for row in active:
            by_group[row["group_name"]] = by_group.get(row["group_name"], 0) + row["runs"]
            by_job[row["job"]] = by_job.get(row["job"], 0) + row["on_fleet"]
        limits = await self.connection.fetch(gates["limits"])
        fleet = await self.connection.fetch(gates["fleet"], heard_since)
        return Situation(
            load=Load(by_group=by_group, on_fleet_by_job=by_job),
            limits={
                row["name"]: GroupLimit(
                    max_active=row["max_active"], priority=row["priority"], enabled=row["enabled"]
                )
                for row in limits
            },
            fleet=[Worker(jobs=tuple(row["jobs"]), slots=row["slots"]) for row in fleet],
        )

    async def candidates(
        self, situation: Situation, rooms: dict[str, int], *, now: datetime, limit: int
    ) -> list[WaitingWork]:
        """The first of those who wait in each group with room, in the order of the gate."""
        rows = await self.connection.fetch(
            gates["candidates"],
            list(rooms),
            list(rooms.values()),
            list(situation.jobs_with_room),
            now,
            limit,
        )
        return [_waiting_work(row) for row in rows]

    async def hold(self, held: Sequence[Held]) -> None:
        """Write down why candidates wait."""
        await self.connection.execute(
            gates["hold"], [one.work for one in held], [one.reason for one in held]
        )

    async def explain_waits(
        self, situation: Situation, closed: dict[str, str], *, now: datetime
    ) -> None:
        """Write down why work waits that is no candidate."""
        await self.connection.execute(
            gates["explain_waits"],
            list(closed),
            list(closed.values()),
            list(situation.jobs),
            list(situation.jobs_with_room),
            now,
            _EXPLAINED_AT_ONCE,
        )

    async def earliest(self) -> datetime | None:
        """When the first of the waiting work may run, or might have."""
        earliest: datetime | None = await self.connection.fetchval(gates["earliest"])
        return earliest

    async def next_not_before(self, now: datetime) -> datetime | None:
        """When the next delayed work may run."""
        moment: datetime | None = await self.connection.fetchval(gates["next_not_before"], now)
        return moment

    async def dispatch(self, admitted: Sequence[Ordered], *, times: Times) -> list[Ordered]:
        """Write lease, run, work and history of admitted work.

        Returns what was really dispatched: not what was cancelled since it was looked at.
        """
        rows = await self.connection.fetch(
            gates["dispatch"],
            [one.work.id for one in admitted],
            [one.run.run for one in admitted],
        )
        dispatched = {row["id"] for row in rows}
        ordered = [one for one in admitted if one.work.id in dispatched]
        # How long a lease stays unclaimed is a matter of liveness.
        await self.connection.execute(
            gates["add_leases"],
            [one.order.lease for one in ordered],
            [one.order.token for one in ordered],
            [one.order.job for one in ordered],
            times.real,
        )
        await self.connection.execute(
            gates["add_runs"],
            [one.run.run for one in ordered],
            [one.work.id for one in ordered],
            [one.order.lease for one in ordered],
            [one.work.manifest_id for one in ordered],
            [one.work.group for one in ordered],
            [one.work.job for one in ordered],
            [one.work.round for one in ordered],
            [one.run.attempt for one in ordered],
            [one.work.due_at for one in ordered],
            [trace_id(one.run.traceparent) for one in ordered],
            [one.work.patience_seconds for one in ordered],
            times.schedule,
        )
        records = [_record(one, times.schedule) for one in ordered]
        await HISTORY.append(self.connection, records, now=times.real)
        return ordered


def _record(ordered: Ordered, now: datetime) -> Record:
    """The order as history keeps it: without its token, which is secret."""
    return Record(
        event_id=str(ordered.order.lease),
        type=RunDispatched.type,
        subject=str(ordered.run.run),
        source=SOURCE,
        occurred_at=now,
        # Its input is the work's, and stands there.
        data={
            "lease": ordered.order.lease,
            "job": ordered.order.job,
            "run": ordered.run.run,
            "work": ordered.work.id,
            "round": ordered.work.round,
            "attempt": ordered.run.attempt,
            "manifest": ordered.work.manifest,
            "group": ordered.work.group,
            "cause": ordered.work.cause,
            "due_at": ordered.work.due_at,
            "patience_seconds": ordered.work.patience_seconds,
            "trace_id": trace_id(ordered.run.traceparent),
        },
        work=ordered.work.id,
        run=ordered.run.run,
        lease=ordered.order.lease,
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
        retry=msgspec.convert(row["retry"], RetryPolicy),
        timeout_seconds=row["timeout_seconds"],
        cancel_grace_seconds=row["cancel_grace_seconds"],
        on_lost_contact=row["on_lost_contact"],
        attempts=row["attempts"],
        traceparent=row["traceparent"],
    )
