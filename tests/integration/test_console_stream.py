"""Server-sent events: live, resumed after a disconnect, and closed."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from headway import App
from headway_console import feed as feed_module
from support.cadences import when_made_due
from support.consoles import local_link
from support.world import until

pytestmark = pytest.mark.thorough


def an_app() -> App:
    app = App("shop")

    @app.job("sync", group="ops")
    async def sync(ctx): ...

    @app.job("mail", group="post")
    async def mail(ctx): ...

    app.schedule("nightly", job="sync", when=when_made_due())
    app.schedule("letters", job="mail", when=when_made_due())
    return app


@asynccontextmanager
async def following(console, headers=None, **filters):
    """Yield the list of received events, each with the id before it."""
    received = []

    async def listen(lines):
        identity = ""
        async for line in lines:
            name, _, value = line.partition(": ")
            if name == "id":
                identity = value
            elif name == "data":
                received.append((identity, json.loads(value)))

    async with (
        console.signed_in("viewer") as client,
        client.stream("GET", "/api/v1/events/stream", params=filters, headers=headers) as reply,
    ):
        assert reply.status_code == 200, await reply.aread()
        assert reply.headers["content-type"].startswith("text/event-stream")
        listening = asyncio.create_task(listen(reply.aiter_lines()))
        await until(lambda: _is(console.service.feed.followers), within=10, what="a follower")
        yield received
        listening.cancel()


async def _is(value):
    return value


async def run_once(world, app, **due):
    await world.run(app)
    await world.until_settled(at_least=2)


async def test_events_are_received_live(world, console):
    app = an_app()
    async with following(console, type="run.*", manifest="nightly") as received:
        await run_once(world, app)

        async def completed():
            return any(event["type"] == "headway.run.completed.v1" for _, event in received)

        await until(completed, within=10, what="the run has completed")
        assert {event["data"].get("manifest", "nightly") for _, event in received} == {"nightly"}
        kinds = [event["type"].split(".")[2] for _, event in received]
        assert "started" in kinds
        assert all(event["type"].startswith("headway.run.") for _, event in received)
    await until(lambda: _is(console.service.feed.followers == 0), within=10, what="no follower")


async def test_a_follower_resumes_without_loss(world, console):
    async with following(console) as received:
        await run_once(world, an_app())
        last = await world.value("SELECT max(id) FROM dispatcher.history")

        async def all_received():
            return max((event["number"] for _, event in received), default=0) == last

        await until(all_received, within=10, what="all events")
        every = sorted(event["number"] for _, event in received)
        assert received[-1][0] == str(last), "the id is the last complete position"
        seen = every[len(every) // 2]
    async with following(console, headers={"Last-Event-ID": str(seen)}) as again:

        async def caught_up():
            return max((event["number"] for _, event in again), default=0) == last

        await until(caught_up, within=10, what="the remaining events")
        missed = [number for number in every if number > seen]
        assert len(missed) > 2
        assert sorted(event["number"] for _, event in again) == missed
    async with console.signed_in("viewer") as client:
        bad = {"Last-Event-ID": "x"}
        reply = await client.get("/api/v1/events/stream", headers=bad)
        assert reply.status_code == 422


async def test_a_console_that_stops_ends_its_streams(world, console):
    async with (
        console.signed_in("viewer") as client,
        client.stream("GET", "/api/v1/events/stream") as reply,
    ):
        lines = reply.aiter_lines()
        assert await anext(lines) == ": still here"
        stopping = asyncio.create_task(console.service.server.stop())
        await console.service.feed.stop()
        async with asyncio.timeout(5):
            assert [line async for line in lines if line] == []
        await stopping


STREAMS = ("/api/v1/events/stream", "/live", "/events/feed", "/workers/live")


@pytest.mark.parametrize("path", STREAMS)
async def test_a_stream_ends_when_its_user_signs_out(console, path):
    async with console.browser() as client, console.signed_in("viewer") as other:
        await client.get(local_link())
        async with client.stream("GET", path) as mine, other.stream("GET", path) as theirs:
            lines, others = mine.aiter_lines(), theirs.aiter_lines()
            assert await anext(lines)
            assert await anext(others)
            await client.post("/sign-out", headers={"origin": console.url})
            async with asyncio.timeout(8):
                await read_on(lines)
            ends = asyncio.create_task(read_on(others))
            assert not (await asyncio.wait({ends}, timeout=0.1))[0], "other streams continue"
            ends.cancel()


async def test_a_stream_ends_with_its_token(console, tmp_path):
    async with console.signed_in("viewer") as client, client.stream("GET", "/live") as mine:
        lines = mine.aiter_lines()
        assert await anext(lines)
        file = tmp_path / "tokens.yaml"
        kept = [entry for entry in file.read_text().split("- ") if "ada-viewer" not in entry]
        file.write_text("- ".join(kept))
        async with asyncio.timeout(8):
            await read_on(lines)


async def test_the_number_of_streams_is_limited(console, monkeypatch):
    monkeypatch.setattr(feed_module, "_MAX_STREAMS", 1)
    path = "/api/v1/events/stream"
    async with console.signed_in("viewer") as client, client.stream("GET", path) as first:
        assert (await anext(first.aiter_lines())).startswith(":")
        second = await client.get(path)
        assert (second.status_code, "try again later" in second.text) == (503, True)
        assert second.headers["retry-after"]


async def test_a_quiet_stream_sends_its_position_as_keep_alive(world, console, monkeypatch):
    monkeypatch.setattr(feed_module, "_KEEP_ALIVE_SECONDS", 0.0)
    options = {"params": {"type": "nothing.such"}}
    path = "/api/v1/events/stream"
    async with (
        console.signed_in("viewer") as client,
        client.stream("GET", path, **options) as reply,
    ):
        lines = reply.aiter_lines()
        await anext(lines)
        await run_once(world, an_app())
        last = await world.value("SELECT max(id) FROM dispatcher.history")
        async with asyncio.timeout(10):
            async for line in lines:
                assert not line.startswith("data"), "no event matches the filter"
                if line == f"id: {last}":
                    break


async def read_on(lines) -> None:
    async for _ in lines:
        pass
