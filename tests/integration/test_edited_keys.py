"""A dead letter that is retried with another input, where the input makes a concurrency key."""

import asyncio

import pytest
import pytest_asyncio
from headway import App, Client, manual, retry
from headway.client import RequestFailed
from support.invariants import check_invariants


class Shop:
    """A job with one key for each customer, of whom some have no address."""

    def __init__(self, world) -> None:
        self.world = world
        self.app = App("shop")
        self.ran: list[int] = []
        self.release = asyncio.Event()

        @self.app.job("sync", group="ops", concurrency_key="customer:{input.id}")
        @retry(attempts=1)
        async def sync(ctx, given: dict):
            self.ran.append(given["id"])
            if given["id"] == 7:
                raise ValueError("no address")
            await self.release.wait()

        self.app.schedule("m", job=sync, when=manual(), input={"id": 7}, on_dead_letter="go_on")

    async def keys(self, work) -> list[str]:
        rows = await self.world.rows(
            "SELECT concurrency_key FROM dispatcher.metadata WHERE work_id = $1"
            " ORDER BY created_at",
            work,
        )
        return [row["concurrency_key"] for row in rows]


@pytest_asyncio.fixture
async def shop(world):
    made = Shop(world)
    await world.dispatcher()
    await world.worker(made.app)
    await world.scheduler(made.app)
    yield made
    made.release.set()


@pytest.mark.parametrize("asked", ["enqueued", "triggered"])
async def test_it_has_the_key_of_that_input(shop, world, nats_url, asked):
    """Otherwise it would run beside work that it must not run beside."""
    async with Client(nats_url) as client:
        if asked == "enqueued":
            work = (await client.enqueue("sync", {"id": 7})).work
        else:
            work = (await client.trigger("m")).work
        letter = await world.until("SELECT id FROM dispatcher.dead_letter")
        await client.enqueue("sync", {"id": 8})
        await world.until("SELECT count(*) FROM dispatcher.metadata WHERE state = 'in_progress'")
        with pytest.raises(RequestFailed, match=r"\{input.id\} is missing"):
            await client.retry(letter, input={"name": "x"})
        [result] = await client.retry(letter, input={"id": 8})
        assert result.result == "retried"
        await world.until("SELECT held_by = 'key' FROM dispatcher.work_queue WHERE id = $1", work)
        assert shop.ran == [7, 8]
        shop.release.set()
        await world.until_settled(at_least=2)
    assert shop.ran == [7, 8, 8]
    assert await shop.keys(work) == ["customer:7", "customer:8"]
    await check_invariants(world.database)


async def test_so_has_one_that_waits_for_its_slot(shop, world, nats_url):
    async with Client(nats_url) as client:
        work = (await client.trigger("m")).work
        letter = await world.until("SELECT id FROM dispatcher.dead_letter")
        await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
        await client.trigger("m", input={"id": 9})
        await world.until("SELECT count(*) FROM dispatcher.metadata WHERE state = 'in_progress'")
        [result] = await client.retry(letter, input={"id": 8})
        assert result.result == "waits"
        shop.release.set()
        await world.until_settled(at_least=2)
    assert shop.ran == [7, 9, 8]
    assert await shop.keys(work) == ["customer:7", "customer:8"]
    await check_invariants(world.database)


async def test_its_manifest_may_have_another_job_by_now(shop, world, nats_url):
    async with Client(nats_url) as client:
        work = (await client.trigger("m")).work
        letter = await world.until("SELECT id FROM dispatcher.dead_letter")
        await world.value("UPDATE scheduler.manifest SET job = 'other', concurrency_key = NULL")
        shop.release.set()
        await client.retry(letter, input={"id": 8})
        await world.until_settled()
    assert await shop.keys(work) == ["customer:7", "customer:8"]
