"""Streams of the console: they notify pages of changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from support.consoles import run_console
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
        "SELECT run_id FROM dispatcher.run JOIN dispatcher.run_report USING (run_id)"
        " WHERE work_id = $1 AND progress IS NOT NULL",
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


@pytest.mark.parametrize(("orphan_timeout", "alive"), [(60, 0), (300, 1)])
async def test_the_overview_counts_workers_by_the_orphan_timeout(
    world, database_url, nats_url, tmp_path, orphan_timeout, alive
):
    await world.value(
        "INSERT INTO dispatcher.worker (name, nonce, host, sdk, sdk_version, jobs, slots, draining,"
        " first_heard_at, last_heard_at) SELECT 'w', '', '', '', '', '{etl}', 1, false, at, at"
        " FROM (SELECT clock_timestamp() - interval '2 minutes' AS at) AS heard RETURNING name"
    )
    async with (
        run_console(
            database_url, nats_url, tmp_path, orphan_timeout_seconds=orphan_timeout
        ) as console,
        console.signed_in("viewer") as client,
    ):
        page = (await client.get("/")).text
    assert f"<strong>{alive}</strong> worker{'s' if alive != 1 else ''}," in page
