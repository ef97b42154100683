"""Pages without a browser: content, change notifications and messages."""

import asyncio

from headway import App, daily
from headway_console.pages import PAGES
from support.consoles import local_link

HTML = {"Accept": "text/html"}


async def test_every_page_needs_no_other_service(console):
    async with console.signed_in("viewer") as client:
        for page in PAGES:
            answer = await client.get(page.path, headers=HTML)
            assert answer.status_code == 200, answer.text
            assert f'<a href="{page.path}"' in answer.text
            assert "<style" not in answer.text
            assert " onclick=" not in answer.text


def test_keys_and_titles_of_pages_are_unique():
    keys = [page.key for page in PAGES if page.key]
    assert len(keys) == len(set(keys))
    assert len(PAGES) == len({page.title for page in PAGES})


async def test_an_open_page_is_notified_of_changes(console, world):
    app = App("news")

    @app.job("say")
    @daily("02:30")
    async def say(ctx): ...

    async with console.signed_in("viewer") as client, client.stream("GET", "/live") as stream:
        lines = stream.aiter_lines()
        async with asyncio.timeout(10):
            await _until(lines, "event: listening")
            await world.declare(app)
            await _until(lines, "event: changed")


async def test_streams_do_not_delay_a_console_that_stops(console):
    async with console.signed_in("viewer") as client, client.stream("GET", "/live") as stream:
        lines = stream.aiter_lines()
        async with asyncio.timeout(10):
            await _until(lines, "event: listening")
            await console.service.feed.stop()
            assert [line async for line in lines if line.startswith("event")] == []


async def test_a_refusal_is_shown_once_on_the_next_page(console, world):
    await world.provision()
    await world.scheduler()
    async with console.browser() as client:
        await client.get(local_link())
        page = await client.get("/plan", headers=HTML)
        csrf = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        sent = await client.post(
            "/manifests/bulk",
            data={"csrf": csrf, "id": "nothing", "action": "enable", "back": "/manifests"},
            headers={"Origin": console.url, **HTML},
        )
        assert (sent.status_code, sent.headers["location"]) == (303, "/manifests")
        following = await client.get("/plan", headers=HTML)
        assert 'class="flash bad"' in following.text
        assert "nothing" in following.text
        again = await client.get("/plan", headers=HTML)
        assert 'class="flash ' not in again.text


async def _until(lines, wanted: str) -> None:
    async for line in lines:
        if line == wanted:
            return
    raise AssertionError(f"the stream ended before {wanted!r}")
