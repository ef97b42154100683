"""Retries with another input, where the input determines the concurrency key."""

import asyncio

import pytest
import pytest_asyncio
from headway import App, manual, retry
from headway.client.client import RequestFailed
from support.invariants import check_invariants

pytestmark = pytest.mark.thorough

HTML = {"Accept": "text/html"}


class Shop:
    """A job with one key for each customer; it fails for some customers."""

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
            "SELECT concurrency_key FROM dispatcher.run WHERE work_id = $1 ORDER BY created_at",
            work,
        )
        return [row["concurrency_key"] for row in rows]


@pytest_asyncio.fixture
async def shop(world):
    made = Shop(world)
    await world.serve(made.app)
    made.scheduler = await world.scheduler(made.app)
    yield made
    made.release.set()


@pytest.mark.parametrize("origin", ["enqueued", "triggered"])
async def test_a_retry_has_the_key_of_its_edited_input(shop, world, client, origin):
    """Otherwise the retry would run beside other work of the same key."""
    if origin == "enqueued":
        work = (await client.enqueue("sync", {"id": 7})).work
    else:
        work = (await client.trigger("m")).work
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    await client.enqueue("sync", {"id": 8})
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    with pytest.raises(RequestFailed, match=r"\{input.id\} is missing"):
        await client.retry(letter, input={"name": "x"})
    [result] = await client.retry(letter, input={"id": 8})
    assert result.result == "retried"
    await world.until("SELECT hold_reason = 'key' FROM dispatcher.work_queue WHERE id = $1", work)
    assert shop.ran == [7, 8]
    shop.release.set()
    await world.until_settled(at_least=2)
    assert shop.ran == [7, 8, 8]
    assert await shop.keys(work) == ["customer:7", "customer:8"]
    await check_invariants(world.database)


async def test_a_retry_that_waits_for_its_slot_has_the_key_of_its_edited_input(shop, world, client):
    work = (await client.trigger("m")).work
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    await world.until("SELECT NOT EXISTS (SELECT FROM scheduler.work)")
    await client.trigger("m", input={"id": 9})
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    [result] = await client.retry(letter, input={"id": 8})
    assert result.result == "waits"
    assert "the input of manifest 'm' itself is unchanged" in result.text
    shop.release.set()
    await world.until_settled(at_least=2)
    assert shop.ran == [7, 9, 8]
    assert await shop.keys(work) == ["customer:7", "customer:8"]
    await check_invariants(world.database)


async def test_a_retry_keeps_the_key_of_its_job_if_the_manifest_changed_its_job(
    shop, world, client
):
    work = (await client.trigger("m")).work
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    await world.value(
        "UPDATE scheduler.manifest SET job = 'other', terms = terms - 'concurrency_key'"
    )
    shop.release.set()
    await client.retry(letter, input={"id": 8})
    await world.until_settled()
    assert await shop.keys(work) == ["customer:7", "customer:8"]


@pytest.mark.parametrize("origin", ["enqueued", "triggered"])
async def test_the_page_refuses_an_input_without_a_key_and_keeps_the_text(
    shop, world, client, console, origin
):
    await (client.enqueue("sync", {"id": 7}) if origin == "enqueued" else client.trigger("m"))
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    before = await tables(world)
    async with console.signed_in("operator") as person:
        for path, status in (("/inputs/check", 200), (f"/dead-letters/{letter}/retry", 422)):
            sent = {"job": "sync", "group": "ops", "input": '{"name": "somebody"}'}
            page = await person.post(path, data=sent, headers=HTML)
            assert page.status_code == status
            assert "{input.id} is missing" in page.text
        assert "somebody" in page.text
        assert "Edit and retry" in page.text
        assert await tables(world) == before, "nothing was changed"
        shop.release.set()
        done = await person.post(
            f"/dead-letters/{letter}/retry", data={"input": '{"id": 8}'}, headers=HTML
        )
        assert done.status_code == 303
    await world.until("SELECT outcome = 'completed' FROM dispatcher.work_queue")
    assert shop.ran == [7, 8]


async def test_the_page_keeps_the_text_if_no_scheduler_can_check_it(shop, world, client, console):
    await client.enqueue("sync", {"id": 7})
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    before = await tables(world)
    await shop.scheduler.stop()
    async with console.signed_in("operator") as person:
        sent = {"input": '{"id": 8, "name": "somebody"}'}
        page = await person.post(f"/dead-letters/{letter}/retry", data=sent, headers=HTML)
    assert page.status_code == 503
    assert "somebody" in page.text
    assert await tables(world) == before


async def test_the_page_retries_an_unedited_input_unchanged(shop, world, console):
    """An unedited letter keeps its key, even if the job has another key by now."""
    async with world.client() as client:
        work = (await client.enqueue("sync", {"id": 7, "urgent": 1})).work
        letter = await world.until("SELECT id FROM dispatcher.dead_letter")
        await world.value(
            """UPDATE scheduler.job
               SET terms = terms || '{"concurrency_key": "customer:{input.name}"}'"""
        )
        async with console.signed_in("operator") as person:
            sent = {"input": '{"urgent": 1,  "id": 7}'}
            done = await person.post(f"/dead-letters/{letter}/retry", data=sent, headers=HTML)
        assert done.status_code == 303
        await world.until("SELECT count(*) = 2 FROM dispatcher.dead_letter")
        assert (await client.dead_letter(letter)).edit == []
    assert await shop.keys(work) == ["customer:7", "customer:7"]


async def test_the_page_distinguishes_true_from_1(shop, world, client, console):
    await client.enqueue("sync", {"id": 7, "urgent": 1})
    letter = await world.until("SELECT id FROM dispatcher.dead_letter")
    async with console.signed_in("operator") as person:
        sent = {"input": '{"id": 7, "urgent": true}'}
        await person.post(f"/dead-letters/{letter}/retry", data=sent, headers=HTML)
    found = await client.dead_letter(letter)
    assert [(change.path, change.was, change.now) for change in found.edit] == [
        ("/urgent", 1, True)
    ]


async def tables(world) -> list[tuple]:
    """Return the rows of the letter, its work and their history."""
    letters = await world.rows("SELECT * FROM dispatcher.dead_letter")
    works = await world.rows("SELECT * FROM dispatcher.work_queue")
    history = await world.rows("SELECT id FROM dispatcher.history ORDER BY id")
    return [tuple(row) for row in (*letters, *works, *history)]
