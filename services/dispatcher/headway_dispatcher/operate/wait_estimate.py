"""What is in the way of one piece of work: who holds the slots, who comes before it, how long."""

import statistics
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from headway_contract.work_queue import GateStatus, SlotHolder
from headway_decisions.capacity import waiting
from headway_decisions.capacity.capacity import Room
from headway_decisions.capacity.waiting import Lane
from headway_postgres_kit import Connection
from msgspec import Struct

from headway_dispatcher.gate.gate import group_step
from headway_dispatcher.gate.store import Situation
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import explanations
from headway_dispatcher.store import gates as gate_queries

MOST_COUNTED = 10_000
# Gates that a run which ends opens; the others open by themselves or by somebody's hand.
_HELD_BY_RUNS = ("global_cap", "group_cap", "job_cap", "key", "workers_full")
# Before these nobody stands in a line.
_NO_LINE = ("start_by", "group_disabled", "manifest_disabled", "not_before")
_UP_TO_SOMEBODY = ("group_disabled", "manifest_disabled", "no_worker")
_TOLD_JOBS = 3


class Estimate(Struct, frozen=True, kw_only=True):
    """When work may start and what that rests on, or why nobody knows."""

    at: datetime | None = None
    basis: str = ""


class _Typical(Struct, frozen=True, kw_only=True):
    """How long runs of a job take, and how many say so."""

    duration: timedelta
    runs: int


class Lookout:
    """Looks at one piece of work that waits, gate by gate."""

    def __init__(
        self,
        connection: Connection,
        row: Any,
        situation: Situation,
        settings: DispatcherSettings,
    ) -> None:
        self._connection = connection
        self._row = row
        self._own: Lane = (row["group_name"], row["job"])
        self._situation = situation
        self._now = situation.glance.times.schedule
        self._room = Room(situation.limits, situation.load, situation.fleet, now=self._now)
        self._silence = timedelta(seconds=settings.orphan_timeout_seconds)
        self._step = group_step(settings)
        self._turn = row["rank"] - row["group_priority"] * self._step

    async def holders(self, gate: GateStatus | None) -> list[SlotHolder]:
        """The runs that keep a gate closed."""
        if gate is None or gate.gate not in _HELD_BY_RUNS:
            return []
        row, full = self._row, gate.gate == "workers_full"
        serving = [one for one in self._situation.fleet if row["job"] in one.jobs]
        rows = await self._connection.fetch(
            explanations["holders"],
            row["group_name"] if gate.gate == "group_cap" else None,
            row["job"] if gate.gate == "job_cap" else None,
            row["concurrency_key"] if gate.gate == "key" else None,
            gate.gate == "global_cap",
            sorted({job for one in serving for job in one.jobs}) if full else None,
            row["job"],
            self._silence,
        )
        return [_holder(one) for one in rows]

    async def ahead(self, gate: GateStatus | None) -> dict[str, int] | None:
        """How much work of each job comes before it there; none if it does not stand in a line."""
        if gate is not None and gate.gate in _NO_LINE:
            return None
        if gate.gate == "key" if gate is not None else waits_for_key(self._row):
            return await self._ahead_with_key()
        limits, fleet = self._situation.limits, self._situation.fleet
        lanes = await self._connection.fetch(gate_queries["lanes"])
        line = waiting.lanes_in_line(
            self._own,
            "workers_full" if gate is None else gate.gate,
            [(one["group_name"], one["job"]) for one in lanes],
            limits,
            self._room,
            fleet,
            now=self._now,
        )
        rows = await self._connection.fetch(
            explanations["ahead_in_lanes"],
            [group for group, _ in line],
            [job for _, job in line],
            self._turn,
            self._step,
            MOST_COUNTED,
        )
        return {one["job"]: one["number"] for one in rows}

    async def start(self, closed: Sequence[GateStatus]) -> Estimate:
        """When it may start: once the last of the gates that are closed has opened for it."""
        if not closed:
            return await self._start_at_once()
        if closed[0].gate == "start_by":
            return Estimate(basis="it came too late")
        if closed[0].gate == "not_before":
            at = closed[0].opens_at
            return Estimate(at=at, basis="its time; what else is in its way shows then")
        if any(gate.gate in _UP_TO_SOMEBODY or gate.limit == 0 for gate in closed):
            return Estimate(basis="nobody can say when that changes")
        estimates = [await self._opens(one) for one in {one.gate: one for one in closed}.values()]
        for estimate in estimates:
            if estimate.at is None:
                return estimate
        return max(estimates, key=lambda one: one.at or self._now)

    async def _ahead_with_key(self) -> dict[str, int]:
        rows = await self._connection.fetch(
            explanations["ahead_with_key"],
            self._row["concurrency_key"],
            self._turn,
            self._step,
            MOST_COUNTED,
        )
        ahead: dict[str, int] = {}
        for one in rows:
            # Who cannot run keeps the key from nobody; for a slot they may all have to wait.
            if self._room.closed(one["group_name"], one["job"]) in (None, "workers_full"):
                ahead[one["job"]] = ahead.get(one["job"], 0) + one["number"]
        return ahead

    async def _start_at_once(self) -> Estimate:
        ahead = sum((await self.ahead(None) or {}).values())
        if ahead and waits_for_key(self._row):
            return Estimate(basis=f"its key has room, and {ahead} come before it")
        if ahead:
            return Estimate(basis=f"the gate comes at once, and {ahead} come before it")
        return Estimate(at=self._now, basis="nothing is in its way: the gate admits it next")

    async def _opens(self, gate: GateStatus) -> Estimate:
        """When a gate opens for this work."""
        ahead = await self.ahead(gate) or {}
        before = sum(ahead.values())
        if gate.gate == "rate":
            limits = self._situation.limits
            at = waiting.rate_turn(self._own, limits, ahead=before, now=self._now)
            return Estimate(at=at, basis=f"the rate, with {before} before it")
        holders = await self.holders(gate)
        if not holders:
            return Estimate(basis="nobody can say when that changes")
        jobs = sorted({holder.job for holder in holders} | set(ahead))
        typical = await self._typical(jobs)
        unknown = [job for job in jobs if job not in typical]
        if unknown:
            return Estimate(basis=f"no run of job {unknown[0]!r} has completed lately to judge by")
        return Estimate(
            at=self._slot_at(gate, holders, ahead, typical),
            basis=f"{self._in_words(typical)}, {before} before it",
        )

    def _slot_at(
        self,
        gate: GateStatus,
        holders: Sequence[SlotHolder],
        ahead: dict[str, int],
        typical: dict[str, _Typical],
    ) -> datetime:
        # Orders that lie ready hold no slot of a worker: they come before this work.
        running = [one for one in holders if one.worker] if gate.gate == "workers_full" else holders
        running = running or holders
        ready = [] if len(running) == len(holders) else [one for one in holders if not one.worker]
        line = [typical[one.job].duration for one in ready]
        for job, number in ahead.items():
            line += [typical[job].duration] * min(number, MOST_COUNTED)
        over = 0 if gate.gate == "workers_full" else (gate.used or 0) - (gate.limit or 0)
        return waiting.estimate_start(
            ends=[one.since + typical[one.job].duration for one in running],
            ahead=line,
            surplus=max(0, over),
            now=self._now,
        )

    async def _typical(self, jobs: Sequence[str]) -> dict[str, _Typical]:
        rows = await self._connection.fetch(explanations["durations"], jobs)
        seconds: dict[str, list[float]] = {}
        for one in rows:
            seconds.setdefault(one["job"], []).append(one["seconds"])
        return {
            job: _Typical(duration=timedelta(seconds=statistics.median(each)), runs=len(each))
            for job, each in seconds.items()
        }

    def _in_words(self, typical: dict[str, _Typical]) -> str:
        told = [
            f"{one.runs} recent run(s) of {'its job' if job == self._own[1] else f'job {job!r}'} "
            f"took {one.duration.total_seconds():.1f} s each"
            for job, one in list(typical.items())[:_TOLD_JOBS]
        ]
        return ", ".join(told)


def waits_for_key(row: Any) -> bool:
    """Whether the gate holds work for its key."""
    return bool(row["hold_reason"] == "key")


def _holder(row: Any) -> SlotHolder:
    return SlotHolder(
        run=row["run_id"],
        work=row["work_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        job=row["job"],
        worker=row["worker"],
        state=row["state"],
        since=row["since"],
    )
