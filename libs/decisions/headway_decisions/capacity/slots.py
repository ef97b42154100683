"""Idle slots of the live fleet.

Claimed leases occupy the slots of their worker. An unclaimed order is on its way to an idle slot of
a worker that serves its job; if there is none, it is a spare and occupies no slot. Workers with the
fewest jobs get orders first, so that the more flexible ones stay idle.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field


class Worker(Struct, frozen=True, kw_only=True):
    """A live worker: its jobs and slots, its limits by job, and its claimed leases by job."""

    jobs: tuple[str, ...]
    slots: int
    concurrency: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def most(self, job: str) -> int:
        """Return how many leases of a job it runs at once."""
        return min(self.slots, self.concurrency.get(job, self.slots))

    def is_full(self, job: str) -> bool:
        """Return whether its claimed leases leave no slot for a job."""
        in_all, of_job = sum(self.held.values()), self.held.get(job, 0)
        return 0 < in_all >= self.slots or 0 < of_job >= self.most(job)


class _Pool(Struct):
    """Workers with the same jobs: their idle slots, in all and by job."""

    idle: int
    takes: dict[str, int]

    def left(self, job: str) -> int:
        return min(self.idle, self.takes.get(job, 0))


class IdleSlots:
    """Idle slots during one pass of the gate."""

    def __init__(self, fleet: Sequence[Worker], leases: Mapping[str, int]) -> None:
        """Count them; `leases` are all leases of the fleet by job, claimed or not."""
        pools: dict[tuple[str, ...], _Pool] = {}
        unclaimed = dict(leases)
        for worker in fleet:
            pool = pools.setdefault(worker.jobs, _Pool(idle=0, takes={}))
            idle = max(0, worker.slots - sum(worker.held.values()))
            pool.idle += idle
            for job in worker.jobs:
                left = max(0, min(idle, worker.most(job) - worker.held.get(job, 0)))
                pool.takes[job] = pool.takes.get(job, 0) + left
            for job, number in worker.held.items():
                unclaimed[job] = unclaimed.get(job, 0) - number
        # The number of idle slots.
        self.in_all = sum(pool.idle for pool in pools.values())
        self._could_run: Counter[str] = Counter()
        self._serving: dict[str, list[_Pool]] = {}
        # The pool with the fewest jobs is the last, where orders are taken from.
        for pool in sorted(pools.values(), key=lambda pool: -len(pool.takes)):
            for job in pool.takes:
                self._could_run[job] += pool.left(job)
                self._serving.setdefault(job, []).append(pool)
        for job, number in unclaimed.items():
            for _ in range(number):
                self.take(job)

    def could_run(self, job: str) -> int:
        """Return how many of them could run a job."""
        return self._could_run[job]

    def take(self, job: str) -> bool:
        """Occupy a slot with an order of a job; return false if there is none."""
        serving = self._serving.get(job, [])
        while serving and serving[-1].left(job) <= 0:
            serving.pop()
        if not serving:
            return False
        pool = serving[-1]
        before = {served: pool.left(served) for served in pool.takes}
        pool.idle -= 1
        pool.takes[job] -= 1
        for served, left in before.items():
            self._could_run[served] -= left - pool.left(served)
        self.in_all -= 1
        return True
