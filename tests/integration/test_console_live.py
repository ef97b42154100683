"""Streams of the console: pages hear that something has changed, and ask for themselves again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from support.troubled_app import Order, TroubledApp


@asynccontextmanager
async def listening(client: httpx.AsyncClient, path: str) -> AsyncIterator[AsyncIterator[str]]:
    """The names of the events of a stream, as they come."""
    async with client.stream("GET", path) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.aiter_lines()
        yield (line.removeprefix("event: ") async for line in lines if line.startswith("event: "))


async def hear(events: AsyncIterator[str]) -> str:
    async with asyncio.timeout(20):
        return await anext(events)


async def test_a_page_of_a_run_hears_of_its_log_and_its_end(world, console):
    app = TroubledApp()
    await world.dispatcher()
    await world.scheduler(app.app, tick="off")
    await world.worker(app.app)
    async with world.client("ada") as asker:
        triggered = await asker.trigger("archive")
    run = await world.until(
        "SELECT run_id FROM dispatcher.metadata WHERE work_id = $1 AND progress IS NOT NULL",
        triggered.work,
    )
    async with (
        console.signed_in("viewer") as client,
        listening(client, f"/runs/{run}/live") as events,
    ):
        assert await hear(events) == "listening"
        app.say("a line")
        assert await hear(events) == "changed"
        app.release()
        assert await hear(events) == "changed"
    await world.until_settled()


async def test_rows_of_events_come_as_they_happen_and_fit_the_filter(world, console):
    app = TroubledApp()
    app.broken = False
    await world.dispatcher()
    await world.scheduler(app.app, tick="off")
    await world.worker(app.app)
    feed = "/events/feed?type=run.completed&after=0"
    async with console.signed_in("viewer") as client, client.stream("GET", feed) as reply:
        async with world.client("ada") as asker:
            await asker.enqueue("ship", Order(item="<script>"))
        told = ""
        async with asyncio.timeout(20):
            async for line in reply.aiter_lines():
                told += line
                if "</tr>" in line:
                    break
    assert "<strong>run.completed</strong>" in told
    assert "&lt;script&gt;" in told
    assert "run.started" not in told
    await world.until_settled()
