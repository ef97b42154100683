"""What the gate lets through.

The gate sees candidates in their order and the room that is left, and answers for each
of them: admitted, or held with the reason. Room only shrinks within one pass, so the
first candidate that a limit holds back shows that limit to all who come after it.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct, field


class GroupLimit(Struct, frozen=True, kw_only=True):
    """The limits in force for a group. `max_active` none means no limit of its own."""

    max_active: int | None = None
    priority: int = 0
    enabled: bool = True


class Candidate(Struct, frozen=True, kw_only=True):
    """Work that wants to run now."""

    work: UUID
    group: str
    job: str


class Worker(Struct, frozen=True, kw_only=True):
    """A live worker: the jobs that it serves with its slots."""

    jobs: tuple[str, ...]
    slots: int


class Load(Struct, frozen=True, kw_only=True):
    """Runs that hold a slot now: all of them by group, and those the live fleet has by job."""

    by_group: dict[str, int] = field(default_factory=dict)
    on_fleet_by_job: dict[str, int] = field(default_factory=dict)


class Admitted(Struct, frozen=True):
    """May run."""

    work: UUID


class Held(Struct, frozen=True):
    """Waits, and why."""

    work: UUID
    reason: str


Verdict = Admitted | Held

# One order more than a worker has slots lies ready for it, so that a slot that falls
# free is filled without a round trip through the gate.
MARGIN = 1


def admit(
    candidates: Sequence[Candidate],
    *,
    load: Load,
    max_active: int,
    limits: dict[str, GroupLimit],
    fleet: Sequence[Worker],
) -> list[Verdict]:
    """Answer every candidate, in the order given."""
    room = _Room(load, max_active, limits, fleet)
    return [room.answer(candidate) for candidate in candidates]


def rooms(
    load: Load, max_active: int, limits: dict[str, GroupLimit], *, most: int
) -> tuple[dict[str, int], dict[str, str]]:
    """How much each group may still get, and why the closed ones get nothing."""
    room_for_all = max_active - sum(load.by_group.values())
    open_groups: dict[str, int] = {}
    closed: dict[str, str] = {}
    for name, limit in limits.items():
        room = most
        if limit.max_active is not None:
            room = min(room, limit.max_active - load.by_group.get(name, 0))
        if not limit.enabled:
            closed[name] = "group_disabled"
        elif room_for_all <= 0:
            closed[name] = "global_cap"
        elif room <= 0:
            closed[name] = "group_cap"
        else:
            open_groups[name] = room
    return open_groups, closed


def job_rooms(load: Load, fleet: Sequence[Worker]) -> dict[str, int]:
    """How many more runs of each job the live fleet may be given."""
    jobs: dict[str, int] = {}
    for worker in fleet:
        for job in worker.jobs:
            jobs[job] = jobs.get(job, 0) + worker.slots + MARGIN
    return {job: room - load.on_fleet_by_job.get(job, 0) for job, room in jobs.items()}


class _Room:
    def __init__(
        self,
        load: Load,
        max_active: int,
        limits: dict[str, GroupLimit],
        fleet: Sequence[Worker],
    ) -> None:
        self.limits = limits
        self.all = max_active - sum(load.by_group.values())
        self.groups = {
            name: limit.max_active - load.by_group.get(name, 0)
            for name, limit in limits.items()
            if limit.max_active is not None
        }
        self.jobs = job_rooms(load, fleet)
        self.fleet = sum(worker.slots + MARGIN for worker in fleet)
        self.fleet -= sum(load.on_fleet_by_job.values())

    def answer(self, candidate: Candidate) -> Verdict:
        reason = self._held_back(candidate)
        if reason is not None:
            return Held(candidate.work, reason)
        self.all -= 1
        self.fleet -= 1
        self.jobs[candidate.job] -= 1
        if candidate.group in self.groups:
            self.groups[candidate.group] -= 1
        return Admitted(candidate.work)

    def _held_back(self, candidate: Candidate) -> str | None:
        limit = self.limits.get(candidate.group)
        if limit is not None and not limit.enabled:
            return "group_disabled"
        if candidate.job not in self.jobs:
            return "no_worker"
        if self.all <= 0:
            return "global_cap"
        if self.groups.get(candidate.group, 1) <= 0:
            return "group_cap"
        if self.jobs[candidate.job] <= 0 or self.fleet <= 0:
            return "workers_full"
        return None
