"""`headway up --reload` follows changes of the app, and `--open` opens the console."""

import re
import signal
import sys

import httpx
import pytest
from support.up import Place

pytestmark = pytest.mark.thorough

APP = """
import asyncio
from headway import App, every, manual
from words import WORD
app = App("hello")
@app.job("hello")
@every(seconds=1)
async def hello(ctx):
    print(WORD, "from a job", flush=True)

@app.job("linger")  # so that the worker needs its drain
async def linger(ctx):
    await asyncio.sleep(600)
app.schedule("linger", job=linger, when=manual())
"""
SECOND = """
@app.job("second")
@every(seconds=1)
async def second(ctx):
    print("second job", flush=True)
"""
MANIFESTS = "SELECT string_agg(external_id, ' ' ORDER BY external_id) FROM scheduler.manifest"
RUNNING = "SELECT true FROM dispatcher.run WHERE work_id = $1 AND state = 'in_progress'"
# A browser that only notes the link.
BROWSER = """
import sys
from pathlib import Path
Path(__file__).with_name("link").write_text(sys.argv[1])
"""


@pytest.fixture
def place(tmp_path) -> Place:
    (tmp_path / "place").mkdir()
    made = Place(tmp_path / "place")
    made.app.write_text(APP)
    (made.folder / "words.py").write_text("WORD = 'first'")
    return made


async def test_changed_files_are_loaded_again(place, world):
    urls = {"HEADWAY_DATABASE_URL": world.database_url, "HEADWAY_NATS_URL": world.nats_url}
    async with place.up("--reload", **urls) as up, world.client() as client:
        await up.until_logged("first from a job")
        lingering = (await client.trigger("linger")).work
        await world.until(RUNNING, lingering)
        # A module of the app, which has the same size.
        (place.folder / "words.py").write_text("WORD = 'other'")
        await up.until_logged("words.py changed: reloaded")
        await up.until_logged("other from a job")
        place.app.write_text(APP + "\n1 / 0\n")
        await up.until_logged("ZeroDivisionError")
        refused = "app.py changed, but the previous version keeps running: cannot import the app"
        assert refused in up.log
        place.app.write_text(APP + SECOND)
        await up.until_logged("second job")
        assert await world.value(MANIFESTS) == "hello-every linger second-every"
        # Its runs were handed back and begin again.
        await world.until(RUNNING, lingering)
        assert await world.value("SELECT count(*) FROM dispatcher.dead_letter") == 0
        up.process.send_signal(signal.SIGINT)
        assert await up.end(within=15) == 0, up.log
    await place.until_nothing_is_left(within=10)


async def test_the_browser_opens_signed_in(place, world):
    urls = {"HEADWAY_DATABASE_URL": world.database_url, "HEADWAY_NATS_URL": world.nats_url}
    browser = place.folder / "browser.py"
    browser.write_text(BROWSER)
    async with place.up("--open", BROWSER=f"{sys.executable} {browser} %s", **urls) as up:
        await up.until_logged("first from a job")
        link = (place.folder / "link").read_text()
        async with httpx.AsyncClient(follow_redirects=True) as client:
            page = await client.get(link)
            assert page.status_code == 200
            assert "sign-in" not in str(page.url)
        assert re.search(r"console: http://127", up.log)
        up.process.send_signal(signal.SIGINT)
        assert await up.end(within=15) == 0, up.log
