"""Streams of the console: they notify pages of changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from support.troubled_app import Order, TroubledApp


@asynccontextmanager
async def listening(client: httpx.AsyncClient, path: str) -> AsyncIterator[AsyncIterator[str]]:
    """Yield the names of the events of a stream."""
    async with client.stream("GET", path) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = reply.aiter_lines()
        yield (line.removeprefix("event: ") async for line in lines if line.startswith("event: "))


async def next_event(events: AsyncIterator[str]) -> str:
    async with asyncio.timeout(20):
        return await anext(events)


async def test_the_page_of_a_run_is_notified_of_its_log_and_its_end(world, console):
    app = TroubledApp()
    await world.dispatcher()
    await world.scheduler(app.app, tick="off")
    await world.worker(app.app)
    async with world.client("ada") as client_of_ada:
        triggered = await client_of_ada.trigger("archive")
    run = await world.until(
        "SELECT run_id FROM dispatcher.metadata WHERE work_id = $1 AND progress IS NOT NULL",
        triggered.work,
    )
    async with (
        console.signed_in("viewer") as client,
        listening(client, f"/runs/{run}/live") as events,
    ):
        assert await next_event(events) == "listening"
        app.say("a line")
        assert await next_event(events) == "changed"
        app.release()
        assert await next_event(events) == "changed"
    await world.until_settled()


async def test_the_event_feed_is_live_and_filtered(world, console):
    app = TroubledApp()
    app.broken = False
    await world.dispatcher()
    await world.scheduler(app.app, tick="off")
    await world.worker(app.app)
    feed = "/events/feed?type=run.completed&after=0"
    async with console.signed_in("viewer") as client, client.stream("GET", feed) as reply:
        async with world.client("ada") as client_of_ada:
            await client_of_ada.enqueue("ship", Order(item="<script>"))
        rows = ""
        async with asyncio.timeout(20):
            async for line in reply.aiter_lines():
                rows += line
                if "</tr>" in line:
                    break
    assert "<strong>run.completed</strong>" in rows
    assert "&lt;script&gt;" in rows
    assert "run.started" not in rows
    await world.until_settled()
