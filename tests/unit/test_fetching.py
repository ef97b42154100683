"""Number of orders that a worker fetches at once: within its slots, with room for other jobs."""

import asyncio
from typing import Any

import pytest
from headway import App
from headway.worker import Worker, WorkerSettings


class Orders:
    """A fake consumer that returns the requested number of orders."""

    name = "orders"

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.may_come = asyncio.Event()
        self.may_come.set()

    async def fetch(self, batch: int) -> list[Any]:
        return ["order"] * batch

    async def take(self, batch: int) -> list[Any]:
        self.batches.append(batch)
        await self.may_come.wait()
        return ["order"] * batch


def worker_of(*jobs: str, slots: int, **most: int) -> Worker:
    app = App("test")
    for name in jobs:
        app.job(name, worker_concurrency=most.get(name))(lambda ctx: None)
    broker: Any = None
    return Worker(app, broker, WorkerSettings(worker_slots=slots))


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
    worker, orders = worker_of(*jobs, slots=slots), Orders()
    assert len(await worker._fetch(orders, "a")) == taken


async def test_a_jobs_own_limit_counts():
    worker, orders = worker_of("a", "b", slots=10, a=3), Orders()
    assert len(await worker._fetch(orders, "a")) == 3


async def test_concurrent_fetches_do_not_reserve_the_same_slots():
    worker, first, second = worker_of("a", "b", slots=10), Orders(), Orders()
    first.may_come.clear()
    taking = asyncio.create_task(worker._fetch(first, "a"))
    while not first.batches:
        await asyncio.sleep(0)
    assert await worker._fetch(second, "b") == ["order"]
    first.may_come.set()
    assert len(await taking) == 9
    assert len(await worker._fetch(second, "b")) == 9, "nothing is promised any more"
