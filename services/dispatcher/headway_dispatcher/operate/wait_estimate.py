"""Estimate when waiting work starts: the holders of its slots, the work ahead, and durations."""

import statistics
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_contract.work_queue import GateStatus, SlotHolder
from headway_decisions.capacity import waiting
from headway_decisions.capacity.waiting import Lane
from headway_decisions.wording import listed
from headway_postgres_kit import Connection
from msgspec import Struct

from headway_dispatcher.gate.gate import Situation, group_step
from headway_dispatcher.gate.waits import read_lanes
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import explanations

MOST_COUNTED = 10_000
# Gates that open when a run ends.
_HELD_BY_RUNS = ("global_cap", "group_cap", "job_cap", "key", "workers_full")
# Gates that do not let work through in an order.
_NO_LINE = ("start_by", "group_disabled", "manifest_disabled", "not_before")
# Gates that a person opens, and how.
_OPENED_BY_PEOPLE = {
    "group_disabled": "enable its group",
    "manifest_disabled": "enable or resume its manifest",
    "no_worker": "start a worker that serves its job",
}
_JOBS_SHOWN = 3
_RECENT_RUNS = 100


class Estimate(Struct, frozen=True, kw_only=True):
    """The expected start of work and its basis, or the reason why there is none."""

    at: datetime | None = None
    basis: str = ""


class WaitEstimate:
    """The estimate for one piece of waiting work."""

    def __init__(
        self, connection: Connection, row: Any, situation: Situation, settings: DispatcherSettings
    ) -> None:
        self._connection = connection
        self._row = row
        self._own: Lane = (row["group_name"], row["job"])
        self._situation = situation
        self._room = situation.room()
        self._silence = timedelta(seconds=settings.orphan_timeout_seconds)
        self._step = group_step(settings)
        self._turn = row["rank"] - row["group_priority"] * self._step

    async def holders(self, gate: GateStatus | None) -> list[SlotHolder]:
        """Return the runs that keep a gate closed."""
        if gate is None or gate.gate not in _HELD_BY_RUNS:
            return []
        row, full = self._row, gate.gate == "workers_full"
        serving = [worker for worker in self._situation.fleet if row["job"] in worker.jobs]
        rows = await self._connection.fetch(
            explanations["holders"],
            row["group_name"] if gate.gate == "group_cap" else None,
            row["job"] if gate.gate == "job_cap" else None,
            row["concurrency_key"] if gate.gate == "key" else None,
            gate.gate == "global_cap",
            sorted({job for worker in serving for job in worker.jobs}) if full else None,
            row["job"],
            self._silence,
        )
        return msgspec.convert([dict(holder) for holder in rows], list[SlotHolder])

    async def ahead(self, gate: GateStatus | None) -> dict[str, int] | None:
        """Return the amount of work ahead by job; `None` if the gate has no line."""
        if gate is not None and gate.gate in _NO_LINE:
            return None
        if gate.gate == "key" if gate is not None else waits_for_key(self._row):
            return await self._ahead_with_key()
        line = waiting.lanes_in_line(
            self._own,
            "workers_full" if gate is None else gate.gate,
            await read_lanes(self._connection),
            self._situation.limits,
            self._room,
            self._situation.fleet,
            now=self._situation.now,
        )
        rows = await self._connection.fetch(
            explanations["ahead_in_lanes"],
            [group for group, _ in line],
            [job for _, job in line],
            self._turn,
            self._step,
            MOST_COUNTED,
        )
        return {row["job"]: row["number"] for row in rows}

    async def _ahead_with_key(self) -> dict[str, int]:
        rows = await self._connection.fetch(
            explanations["ahead_with_key"],
            self._row["concurrency_key"],
            self._turn,
            self._step,
            MOST_COUNTED,
        )
        ahead: dict[str, int] = {}
        for row in rows:
            # Work that cannot run does not take the key; a missing slot delays all of them.
            if self._room.closed(row["group_name"], row["job"]) in (None, "workers_full"):
                ahead[row["job"]] = ahead.get(row["job"], 0) + row["number"]
        return ahead

    async def start(self, closed: Sequence[GateStatus]) -> Estimate:
        """Return when the work may start: when the last closed gate opens for it."""
        if not closed:
            return await self._start_at_once()
        if closed[0].gate == "start_by":
            return Estimate(basis="its time to start is over")
        if closed[0].gate == "not_before":
            at = closed[0].opens_at
            return Estimate(at=at, basis="its time; limits are checked then")
        remedies = [
            _OPENED_BY_PEOPLE.get(gate.gate, "raise its limit")
            for gate in closed
            if gate.gate in _OPENED_BY_PEOPLE or (gate.limit == 0 and gate.gate != "workers_full")
        ]
        if remedies:
            return Estimate(basis=listed(dict.fromkeys(remedies)))
        by_gate = {gate.gate: gate for gate in closed}
        estimates = [await self._opens(gate) for gate in by_gate.values()]
        for estimate in estimates:
            if estimate.at is None:
                return estimate
        return max(estimates, key=lambda estimate: estimate.at or self._situation.now)

    async def _start_at_once(self) -> Estimate:
        ahead = sum((await self.ahead(None) or {}).values())
        if not ahead:
            return Estimate(at=self._situation.now, basis="the gate admits it next")
        open_gate = "its key has room" if waits_for_key(self._row) else "all gates are open"
        return Estimate(basis=f"{open_gate}, work ahead of it: {ahead}")

    async def _opens(self, gate: GateStatus) -> Estimate:
        """Return when a gate opens for this work."""
        ahead = await self.ahead(gate) or {}
        before = sum(ahead.values())
        if gate.gate == "rate":
            situation = self._situation
            at = waiting.rate_turn(self._own, situation.limits, ahead=before, now=situation.now)
            return Estimate(at=at, basis=f"the rate, {before} before it")
        holders = await self.holders(gate)
        if not holders:
            return Estimate(basis="no run holds the slots")
        jobs = sorted({holder.job for holder in holders} | set(ahead))
        rows = await self._connection.fetch(explanations["durations"], jobs, _RECENT_RUNS)
        seconds: dict[str, list[float]] = {}
        for row in rows:
            seconds.setdefault(row["job"], []).append(row["seconds"])
        unknown = [job for job in jobs if job not in seconds]
        if unknown:
            return Estimate(basis=f"no run of job {unknown[0]!r} has completed recently")
        durations = {
            job: timedelta(seconds=statistics.median(each)) for job, each in seconds.items()
        }
        shown = [
            f"{_plural(len(each), 'recent run')} of "
            f"{'its job' if job == self._own[1] else f'job {job!r}'} "
            f"took a median of {durations[job].total_seconds():.1f} s"
            for job, each in list(seconds.items())[:_JOBS_SHOWN]
        ]
        return Estimate(
            at=self._slot_at(gate, holders, ahead, durations),
            basis=f"{', '.join(shown)}, {before} before it",
        )

    def _slot_at(
        self,
        gate: GateStatus,
        holders: Sequence[SlotHolder],
        ahead: dict[str, int],
        durations: dict[str, timedelta],
    ) -> datetime:
        full = gate.gate == "workers_full"
        running = [holder for holder in holders if holder.worker] if full else []
        # Unclaimed orders hold no slot of a worker: they are ahead of this work.
        line = [durations[each.job] for each in holders if running and not each.worker]
        for job, number in ahead.items():
            line += [durations[job]] * min(number, MOST_COUNTED)
        over = 0 if full else (gate.used or 0) - (gate.limit or 0)
        return waiting.estimate_start(
            ends=[holder.since + durations[holder.job] for holder in running or holders],
            ahead=line,
            surplus=max(0, over),
            now=self._situation.now,
        )


def waits_for_key(row: Any) -> bool:
    """Whether the gate holds work for its key."""
    return bool(row["hold_reason"] == "key")


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
