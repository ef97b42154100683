"""The slots of the live fleet that have nothing to do.

What a worker has claimed takes its slots. An order that nobody has claimed yet is on its way to
an idle slot of somebody who serves its job; if there is none, it is a spare that lies ready for
a slot which is still taken, and takes none. Who can do the least gets an order first, so that
those stay idle who could do other things.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct, field


class Worker(Struct, frozen=True, kw_only=True):
    """A live worker: the jobs that it serves with its slots, and of which it runs fewer at once.

    `held` is how many leases of each job it has claimed.
    """

    jobs: tuple[str, ...]
    slots: int
    concurrency: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)

    def most(self, job: str) -> int:
        """How many of a job it runs at once."""
        return min(self.slots, self.concurrency.get(job, self.slots))

    def is_full(self, job: str) -> bool:
        """Whether it can take no order of a job because of what it runs."""
        in_all, of_job = sum(self.held.values()), self.held.get(job, 0)
        return 0 < in_all >= self.slots or 0 < of_job >= self.most(job)


class _Pool(Struct):
    """Workers that serve the same jobs: their idle slots, and how many of each job they take."""

    idle: int
    takes: dict[str, int]

    def left(self, job: str) -> int:
        return min(self.idle, self.takes.get(job, 0))


class IdleSlots:
    """Idle slots, while orders are made for them one after the other."""

    def __init__(self, fleet: Sequence[Worker], leases: Mapping[str, int]) -> None:
        """Count them; `leases` are all that the fleet has by job, claimed or not."""
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
        self._in_all = sum(pool.idle for pool in pools.values())
        self._could_run: Counter[str] = Counter()
        self._serving: dict[str, list[_Pool]] = {}
        # The one that can do the least is the last, where it is taken from.
        for pool in sorted(pools.values(), key=lambda pool: -len(pool.takes)):
            for job in pool.takes:
                self._could_run[job] += pool.left(job)
                self._serving.setdefault(job, []).append(pool)
        for job, number in unclaimed.items():
            for _ in range(number):
                self.take(job)

    @property
    def in_all(self) -> int:
        """How many there are."""
        return self._in_all

    def could_run(self, job: str) -> int:
        """How many of them could run a job."""
        return self._could_run[job]

    def take(self, job: str) -> bool:
        """Give one an order of a job; false if none could run it."""
        serving = self._serving.get(job, [])
        while serving and serving[-1].left(job) <= 0:
            serving.pop()
        if not serving:
            return False
        pool = serving[-1]
        before = {one: pool.left(one) for one in pool.takes}
        pool.idle -= 1
        pool.takes[job] -= 1
        for one, left in before.items():
            self._could_run[one] -= left - pool.left(one)
        self._in_all -= 1
        return True
