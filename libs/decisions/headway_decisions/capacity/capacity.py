"""Admit work under every limit.

The gate takes candidates in order and the remaining room, which only shrinks within one pass. A
*lane* is the work of one job in one group: it has the same limits except keys and manifests, so a
lane without room is skipped as a whole.

The runs of a lease execute one after the other in one slot. So limits count leases: a lease counts
once against the global limit, the limit of its job, and the limits of its groups and keys. Rates
count runs. Short jobs share leases: `packing` says how many runs a lease has.

A *spare* is an order that waits for a slot in use. It occupies capacity although no worker runs it,
so it is given only where no other work could use that capacity: never for work with a key, and only
while every limit has more room than there are idle slots, and more than one.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

from msgspec import Struct, field

from headway_decisions.capacity import packing, rates
from headway_decisions.capacity.limits import Limit, Limits
from headway_decisions.capacity.rates import Bundle
from headway_decisions.capacity.slots import IdleSlots, Worker

Reason = Literal[
    "group_disabled",
    "manifest_disabled",
    "no_worker",
    "global_cap",
    "group_cap",
    "job_cap",
    "rate",
    "key",
    "workers_full",
]

# Spare orders of each worker, so that a free slot is filled without a round trip through the gate.
MARGIN = 1

_UNLIMITED = sys.maxsize
# Reasons that do not hold work which joins a lease of this pass.
_MET_BY_A_LEASE = frozenset({"global_cap", "job_cap", "workers_full"})


class Candidate(Struct, frozen=True, kw_only=True):
    """Work that is ready; `key_active` runs hold its key, `size` is that of its input in bytes."""

    work: UUID
    group: str
    job: str
    key: str | None = None
    key_limit: int = 1
    key_active: int = 0
    manifest_disabled: bool = False
    on_lost_contact: str = "stop"
    size: int = 0
    exclusive_lease: bool = False


class Load(Struct, frozen=True, kw_only=True):
    """Active leases by group and by job, and those of the live fleet by job."""

    groups: dict[str, int] = field(default_factory=dict)
    jobs: dict[str, int] = field(default_factory=dict)
    leases_on_fleet: dict[str, int] = field(default_factory=dict)


class Admitted(Struct, frozen=True):
    """It may run, in the lease with this number."""

    work: UUID
    lease: int


class Held(Struct, frozen=True):
    """It waits for this reason."""

    work: UUID
    reason: Reason


Verdict = Admitted | Held

Limited = Literal["group", "job"]
# The kind and name of a group or a job.
Key = tuple[Limited, str]


class RateUse(Struct, frozen=True, kw_only=True):
    """Starts under the rate of a group or a job, and when the next one may begin."""

    kind: Limited
    name: str
    begun: list[Bundle]
    frees_at: datetime | None


class JobRoom(Struct, frozen=True, kw_only=True):
    """How much work of a job the gate may read; `idle` is the part for idle slots."""

    runs: int
    idle: int
    lease_size: int


class GroupRoom(Struct, frozen=True, kw_only=True):
    """The room of a group: leases under its limit, runs under its rate, and for spare orders."""

    leases: int
    runs: int
    may_spare: bool


class _OpenLease(Struct):
    number: int
    runs_left: int
    bytes_left: int
    is_spare: bool
    groups: set[str]
    keys: set[str]


class Room:
    """The rest of every limit during one pass."""

    def __init__(
        self, limits: Limits, load: Load, fleet: Sequence[Worker], *, now: datetime
    ) -> None:
        self._limits = limits
        self._all = limits.max_active
        self._limited: dict[Key, Limit] = {
            **{("group", name): group for name, group in limits.groups.items()},
            **{("job", name): job for name, job in limits.jobs.items()},
        }
        self._caps: dict[Key, int] = defaultdict(lambda: _UNLIMITED)
        self._rates: dict[Key, int] = defaultdict(lambda: _UNLIMITED)
        for key, limit in self._limited.items():
            if limit.max_active is not None:
                self._caps[key] = limit.max_active
            if limit.rate is not None:
                self._rates[key] = rates.room(limit.rate, limit.begun, now)
        self._rated = set(self._rates)
        self._begun: Counter[Key] = Counter()
        for group, leases in load.groups.items():
            self._caps["group", group] -= leases
        for job, leases in load.jobs.items():
            self._take_job(job, leases)
        self._fleet_of_job = _fleet_rooms(load, fleet)
        self._fleet = sum(worker.slots + MARGIN for worker in fleet)
        self._fleet -= sum(load.leases_on_fleet.values())
        self._idle = IdleSlots(fleet, load.leases_on_fleet)
        self._runs_of_a_lease: dict[str, int] = {}
        self._open_leases: dict[tuple[str, str], _OpenLease] = {}
        self._leases = 0
        self._keys: Counter[str] = Counter()

    def closed(self, group: str, job: str) -> Reason | None:
        """Return the first reason why nothing of a lane may run, or `None`."""
        return next(self.lacks(group, job), None)

    def lacks(self, group: str, job: str) -> Iterator[Reason]:
        """Yield every reason why nothing of a lane may run, in order of precedence."""
        return (reason for reason, room in self._gates(group, job) if room <= 0)

    def waits_for(self, group: str, job: str) -> Reason | None:
        """Return why the rest of a skipped lane waits: without an idle slot, for workers."""
        reason = self.closed(group, job)
        return "workers_full" if reason is None and not self._idle.could_run(job) else reason

    def may_have_spare(self, group: str, job: str, *, keyed: bool) -> bool:
        """Return whether a lane may have a spare order."""
        return not keyed and self._may_spare(job) and self.group_may_spare(group)

    def group_may_spare(self, group: str) -> bool:
        """Return whether the limit of a group has room for a spare order."""
        return self._leaves_room(self._caps["group", group])

    def has_order(self, group: str, job: str, *, keyed: bool) -> bool:
        """Return whether workers may get one more order of a lane."""
        orders = self._idle.could_run(job) if keyed else self._orders_left(group, job)
        return orders > 0

    def groups(self, *, most: int) -> dict[str, GroupRoom]:
        """Return the room of each group that has limits."""
        return {
            name: GroupRoom(
                leases=_between(0, self._caps["group", name], most) if limit.enabled else 0,
                runs=_between(0, self._rates["group", name], most),
                may_spare=self.group_may_spare(name),
            )
            for name, limit in self._limits.groups.items()
        }

    def jobs(self, *, most: int) -> dict[str, JobRoom]:
        """Return the room of each job that workers serve and that has any."""
        rooms = {}
        for job, leases in self._fleet_of_job.items():
            limit, idle = self._limits.job(job), self._idle.could_run(job)
            orders = max(idle, min(leases, self._fleet)) if self._may_spare(job) else idle
            cap = self._caps["job", job]
            if limit.counts_globally:
                cap = min(cap, self._all)
            size, runs = limit.lease_size, min(self._rates["job", job], most)
            room = JobRoom(
                runs=_between(0, min(orders, cap) * size, runs),
                idle=_between(0, min(idle, cap) * size, runs),
                lease_size=size,
            )
            if room.runs > 0:
                rooms[job] = room
        return rooms

    def spread(self, candidates: Sequence[Candidate]) -> None:
        """Spread the waiting work of short jobs over the idle slots, by smaller leases."""
        groups: dict[str, set[str]] = {}
        for candidate in candidates:
            groups.setdefault(candidate.job, set()).add(candidate.group)
        waiting = Counter(candidate.job for candidate in candidates)
        for job, count in waiting.items():
            limit = self._limits.job(job)
            if limit.lease_size > 1:
                leases = min(self._idle.could_run(job), self._caps["job", job])
                leases = min(leases, sum(self._caps["group", group] for group in groups[job]))
                leases = min(leases, self._all) if limit.counts_globally else leases
                self._runs_of_a_lease[job] = packing.spread(
                    limit.lease_size, waiting=count, slots=leases, seconds=limit.seconds
                )

    def answer(self, candidate: Candidate) -> Verdict:
        """Admit a candidate if every limit has room for it."""
        shared = self._shared(candidate)
        reason = self._hold_reason(candidate, shared)
        if reason is not None:
            return Held(candidate.work, reason)
        lease = self._new_lease(candidate) if shared is None else shared
        lease.runs_left -= 1
        lease.bytes_left -= candidate.size
        if candidate.group not in lease.groups:
            lease.groups.add(candidate.group)
            self._caps["group", candidate.group] -= 1
        if candidate.key is not None and candidate.key not in lease.keys:
            lease.keys.add(candidate.key)
            self._keys[candidate.key] += 1
        if self._is_rated(candidate):
            for key in _keys_of(candidate.group, candidate.job):
                self._rates[key] -= 1
                self._begun[key] += 1
        return Admitted(candidate.work, lease.number)

    def rate_uses(self, at: datetime) -> list[RateUse]:
        """Return the rates under which work was admitted, to be stored; the runs begin at `at`."""
        return [use for use in self._rate_uses(at) if self._begun[use.kind, use.name]]

    def rates_free_at(self, at: datetime) -> datetime | None:
        """Return when the first exhausted rate has room again, or `None`; runs begin at `at`."""
        times = [use.frees_at for use in self._rate_uses(at) if use.frees_at is not None]
        return min(times, default=None)

    def _rate_uses(self, at: datetime) -> Iterator[RateUse]:
        for (kind, name), limit in self._limited.items():
            if limit.rate is not None:
                begun = rates.begin(limit.rate, limit.begun, self._begun[kind, name], at)
                frees_at = rates.frees_at(limit.rate, begun, at)
                yield RateUse(kind=kind, name=name, begun=begun, frees_at=frees_at)

    def _take_job(self, job: str, leases: int) -> None:
        if self._limits.job(job).counts_globally:
            self._all -= leases
        self._caps["job", job] -= leases

    def _gates(self, group: str, job: str) -> Iterator[tuple[Reason, int]]:
        """Yield the rest of every limit of a lane, in order of precedence."""
        yield "group_disabled", int(self._limits.group(group).enabled)
        yield "no_worker", int(job in self._fleet_of_job)
        if self._limits.job(job).counts_globally:
            yield "global_cap", self._all
        of_group, of_job = _keys_of(group, job)
        yield "group_cap", self._caps[of_group]
        yield "job_cap", self._caps[of_job]
        yield "rate", min(self._rates[of_group], self._rates[of_job])
        yield "workers_full", self._orders_left(group, job)

    def _orders_left(self, group: str, job: str) -> int:
        orders = self._idle.could_run(job)
        if self.may_have_spare(group, job, keyed=False):
            orders = max(orders, min(self._fleet, self._fleet_of_job.get(job, 0)))
        return orders

    def _may_spare(self, job: str) -> bool:
        """Return whether the global limit and that of a job have room for a spare."""
        counted = self._all if self._limits.job(job).counts_globally else _UNLIMITED
        return self._leaves_room(counted) and self._caps["job", job] > 1

    def _leaves_room(self, room: int) -> bool:
        """Return whether a limit still has room for every idle slot after one spare."""
        return room > max(1, self._idle.in_all)

    def _is_rated(self, candidate: Candidate) -> bool:
        of_group, of_job = _keys_of(candidate.group, candidate.job)
        return of_group in self._rated or of_job in self._rated

    def _hold_reason(self, candidate: Candidate, lease: _OpenLease | None) -> Reason | None:
        """Return why a candidate may not run, or `None`; `lease` is the one that it may join."""
        joined = lease is not None and candidate.group in lease.groups
        reason: Reason | None = None
        # A lane that is in the lease has passed every other gate.
        if not joined or self._is_rated(candidate):
            met = _MET_BY_A_LEASE if lease is not None else ()
            for lack in self.lacks(candidate.group, candidate.job):
                if lack not in met and not (joined and lack == "group_cap"):
                    reason = lack
                    break
        held_keys = lease.keys if lease is not None else ()
        if reason is None and candidate.key is not None and candidate.key not in held_keys:
            # A run with a key needs an idle slot: it gets no spare order.
            if candidate.key_active + self._keys[candidate.key] >= candidate.key_limit:
                reason = "key"
            elif lease is None and not self._idle.could_run(candidate.job):
                reason = "workers_full"
        if candidate.manifest_disabled and reason != "group_disabled":
            return "manifest_disabled"
        return reason

    def _shared(self, candidate: Candidate) -> _OpenLease | None:
        """Return the open lease of this pass that the candidate may join, or `None`."""
        if candidate.exclusive_lease:
            return None
        lease = self._open_leases.get((candidate.job, candidate.on_lost_contact))
        if lease is None or lease.runs_left <= 0 or lease.bytes_left < candidate.size:
            return None
        if lease.is_spare and candidate.key is not None:
            return None
        if candidate.group not in lease.groups:
            # A lease takes room of a further group only as a new one would.
            if self._caps["group", candidate.group] <= 0:
                return None
            if lease.is_spare and not self.group_may_spare(candidate.group):
                return None
        return lease

    def _new_lease(self, candidate: Candidate) -> _OpenLease:
        self._fleet -= 1
        self._fleet_of_job[candidate.job] -= 1
        self._take_job(candidate.job, 1)
        size = self._limits.job(candidate.job).lease_size
        lease = _OpenLease(
            number=self._leases,
            runs_left=self._runs_of_a_lease.get(candidate.job, size),
            bytes_left=packing.MOST_BYTES,
            is_spare=not self._idle.take(candidate.job),
            groups=set(),
            keys=set(),
        )
        self._leases += 1
        if not candidate.exclusive_lease:
            self._open_leases[candidate.job, candidate.on_lost_contact] = lease
        return lease


def admit(candidates: Sequence[Candidate], room: Room, *, more: bool = False) -> list[Verdict]:
    """Judge every candidate in order; `more` says that others wait behind them."""
    if not more:
        room.spread(candidates)
    return [room.answer(candidate) for candidate in candidates]


def _between(least: int, value: int, most: int) -> int:
    return max(least, min(value, most))


def _keys_of(group: str, job: str) -> tuple[Key, Key]:
    return ("group", group), ("job", job)


def _fleet_rooms(load: Load, fleet: Sequence[Worker]) -> dict[str, int]:
    """Return how many more leases of each job the live fleet may get."""
    jobs: dict[str, int] = {}
    for worker in fleet:
        for job in worker.jobs:
            jobs[job] = jobs.get(job, 0) + worker.most(job) + MARGIN
    return {job: room - load.leases_on_fleet.get(job, 0) for job, room in jobs.items()}
