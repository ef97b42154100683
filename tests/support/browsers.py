"""The console as people use it: a real system, and Chromium to look at it with.

Debian's Chromium, not one that Playwright downloads: `apt-get install chromium`, or name another
with `HEADWAY_CHROMIUM`. Without one these tests are skipped, and say so.
"""

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    async_playwright,
    expect,
)

from support.consoles import LOCAL, Console, local_link, run_console
from support.servers import TestPostgres, run_nats
from support.shown_app import ShownApp
from support.world import World

WIDE, NARROW = 1400, 400
_AXE = Path(__file__).parents[1] / "browser" / "vendor" / "axe.min.js"
# A deadline that a busy machine can keep; what is there is seen at once.
expect.set_options(timeout=15_000)
_SERIOUS = ("serious", "critical")
# Over all pages of a visit; what the keyboard does is no click.
_COUNT_CLICKS = """addEventListener("click", (event) => {
    if (event.isTrusted && event.detail) sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1;
}, true);"""


@dataclass
class System:
    """Everything that `headway up` runs, in this process, with an app that has something to show."""

    world: World
    console: Console
    shown: ShownApp

    @property
    def url(self) -> str:
        return self.console.url


def chromium_path() -> str:
    """Return the path of Chromium; skip the test if there is none."""
    found = os.environ.get("HEADWAY_CHROMIUM") or shutil.which("chromium")
    if not found:
        pytest.skip("there is no Chromium: 'apt-get install chromium', or set HEADWAY_CHROMIUM")
    return found


@asynccontextmanager
async def run_chromium() -> AsyncIterator[Browser]:
    """A browser without a window."""
    path = chromium_path()
    async with async_playwright() as playwright:
        # Without a sandbox, because in containers the tests run as root.
        browser = await playwright.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def run_system(
    postgres: TestPostgres, folder: Path, shown: ShownApp
) -> AsyncIterator[System]:
    """A scheduler, a dispatcher, a worker and a console on servers of their own."""
    database_url = await postgres.new_database()
    async with run_nats(folder / "nats") as nats:
        nats_url = await nats.empty_account()
        database = await Database.connect(database_url, name="test")
        broker = await Broker.connect(nats_url, name="test")
        world = World(database_url, nats_url, database, broker)
        try:
            await world.dispatcher()
            await world.declare(shown.app)
            await world.scheduler(shown.app)
            await world.worker(shown.app)
            async with run_console(database_url, nats_url, folder, local=LOCAL) as console:
                yield System(world, console, shown)
        finally:
            shown.release()
            await world.stop()
            await broker.close()
            await database.close()
    await postgres.drop(database_url)


class Complaints:
    """Collect errors of scripts and violations of the content policy."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def watch(self, page: Page) -> None:
        page.on("pageerror", lambda error: self.texts.append(str(error)))
        page.on("console", self._heard)
        # A dialog in a test is a hostile text that was run; confirmations are pages of ours.
        page.on("dialog", lambda dialog: self.texts.append(f"dialog: {dialog.message}"))

    def _heard(self, message: ConsoleMessage) -> None:
        # A refused request is answered with a page that says so, which tests look at themselves.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.texts.append(message.text)


@asynccontextmanager
async def open_page(
    browser: Browser, system: System, *, role: str = "", width: int = WIDE, **options: Any
) -> AsyncIterator[Page]:
    """A page of a signed-in user: of a role, or the local user.

    Fails afterwards if a script failed or the content policy blocked something.
    """
    context = await browser.new_context(
        base_url=system.url, viewport={"width": width, "height": 900}, **options
    )
    context.set_default_timeout(10_000)
    complaints = Complaints()
    try:
        page = await context.new_page()
        complaints.watch(page)
        await _sign_in(context, page, system, role)
        yield page
        assert complaints.texts == []
    finally:
        await context.close()


async def _sign_in(context: BrowserContext, page: Page, system: System, role: str) -> None:
    if not role:  # by the link that `headway up` shows; the page is empty until it goes somewhere
        await context.request.get(local_link(), max_redirects=0)
        return
    await page.goto("/sign-in")
    await page.get_by_label("Token").fill(system.console.tokens[role])
    await page.get_by_role("button", name="Sign in").click()


@asynccontextmanager
async def three_clicks(page: Page, start: str = "/") -> AsyncIterator[None]:
    """Begin at the overview or another page; fail if the body needs more clicks than three."""
    await page.add_init_script(_COUNT_CLICKS)
    await page.goto(start)
    yield
    clicks = await page.evaluate("() => Number(sessionStorage.clicks || 0)")
    assert clicks <= 3, f"{clicks} clicks"


async def check_accessible(page: Page, *rules: str) -> None:
    """Fail on what axe calls serious or critical on the page as it stands, by all rules or some."""
    # By the protocol and not as an element: the content policy lets no inline script run.
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(_AXE.read_text())
    found = await page.evaluate(
        "(rules) => axe.run(document, {resultTypes: ['violations'],"
        " ...(rules.length && {runOnly: rules})})",
        list(rules),
    )
    bad = [
        f"{rule['id']}: {rule['help']}: {[node['html'][:200] for node in rule['nodes'][:3]]}"
        for rule in found["violations"]
        if rule["impact"] in _SERIOUS
    ]
    assert bad == [], f"{page.url}\n" + "\n".join(bad)


async def check_fits(page: Page) -> None:
    """Fail if the page has to be moved sideways; tables may, inside their own frame."""
    overflow = await page.evaluate(
        "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0, f"{page.url} is {overflow} px too wide"


async def look_closely(page: Page, name: str) -> None:
    """Check a page at both widths, light and dark; with HEADWAY_SCREENSHOTS leave pictures there.

    `name` is what the pictures are called.
    """
    await check_accessible(page)
    for width in (NARROW, WIDE):
        await page.set_viewport_size({"width": width, "height": 900})
        await check_fits(page)
    # Colours change nothing but contrast.
    await page.emulate_media(color_scheme="dark")
    await check_accessible(page, "color-contrast")
    if folder := os.environ.get("HEADWAY_SCREENSHOTS"):
        await _take_pictures(page, Path(folder), name)
    await page.emulate_media(color_scheme="light")


async def _take_pictures(page: Page, folder: Path, name: str) -> None:
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme=scheme)
        for width in (NARROW, WIDE):
            await page.set_viewport_size({"width": width, "height": 900})
            await page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
