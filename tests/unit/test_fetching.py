"""Number of orders that a worker fetches at once: within its slots, with room for other jobs."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from headway import App
from headway.worker import Worker, WorkerSettings


class Orders:
    """A fake consumer that returns the requested number of orders, and says how many are left."""

    name = "orders"

    def __init__(self, job: str, *, left: int = 100) -> None:
        self.order = SimpleNamespace(job=job, pending=left)
        self.batches: list[int] = []
        self.may_come = asyncio.Event()
        self.may_come.set()

    async def fetch(self, batch: int) -> list[Any]:
        return [self.order] * batch

    async def take(self, batch: int) -> list[Any]:
        self.batches.append(batch)
        await self.may_come.wait()
        return [self.order] * batch


class Accepting(Worker):
    """A worker that gives each order a slot, which it keeps."""

    def accepted(self, job: str) -> int:
        return self._used[job]

    async def _accept(self, messages: list[Any]) -> None:
        for order in messages:
            self._free -= 1
            self._used[order.job] += 1

    def free_all(self, slots: int) -> None:
        self._free = slots
        self._used.clear()


def worker_of(*jobs: str, slots: int, **most: int) -> Accepting:
    app = App("test")
    for name in jobs:
        app.job(name, worker_concurrency=most.get(name))(lambda ctx: None)
    broker: Any = None
    return Accepting(app, broker, WorkerSettings(worker_slots=slots))


@pytest.mark.parametrize(
    ("jobs", "slots", "taken"),
    [
        (["a"], 1, 1),
        (["a"], 10, 10),
        (["a", "b"], 10, 9),
        (["a", "b", "c"], 10, 8),
        (["a", "b", "c"], 3, 1),
        (["a", "b", "c"], 2, 1),
    ],
)
async def test_one_slot_is_left_to_each_other_job(jobs, slots, taken):
    worker = worker_of(*jobs, slots=slots)
    await worker._fetch(Orders("a"), "a")
    assert worker.accepted("a") == taken


async def test_no_more_are_requested_if_none_are_left():
    worker, orders = worker_of("a", slots=10), Orders("a", left=0)
    await worker._fetch(orders, "a")
    assert (worker.accepted("a"), orders.batches) == (1, [])


async def test_a_jobs_own_limit_counts():
    worker = worker_of("a", "b", slots=10, a=3)
    await worker._fetch(Orders("a"), "a")
    assert worker.accepted("a") == 3


async def test_concurrent_fetches_do_not_reserve_the_same_slots():
    worker, first, second = worker_of("a", "b", slots=10), Orders("a"), Orders("b")
    first.may_come.clear()
    taking = asyncio.create_task(worker._fetch(first, "a"))
    while not first.batches:
        await asyncio.sleep(0)
    assert worker.accepted("a") == 1, "the first order begins before more are taken"
    await worker._fetch(second, "b")
    first.may_come.set()
    await taking
    assert (worker.accepted("a"), worker.accepted("b")) == (9, 1)
    worker.free_all(10)
    await worker._fetch(second, "b")
    assert worker.accepted("b") == 9, "nothing is promised any more"
