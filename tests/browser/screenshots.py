"""Pictures of the console, as the demo fills it: `./justw screenshots`.

Starts the demo in a folder of its own, waits until it has something on every page, and writes
the pictures into the folder that it is given, which takes some three minutes. Another picture is of
a nightly job with five weeks of history under a virtual clock. It needs Chromium, as the browser
tests do.
"""

import asyncio
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nightly import DISABLED, MANIFEST, ZONE, night, running_nightly
from playwright.async_api import Browser, Page, async_playwright, expect
from support.consoles import local_link

ROOT = Path(__file__).parents[2]
# Beside the recording of the terminal, which is as narrow.
NIGHTLY = {"width": 1000, "height": 1000}
WIDE, TALL = {"width": 1280, "height": 960}, {"width": 1280, "height": 1200}
PHONE = {"width": 400, "height": 800}
# Last action of Grace in the demo: everything else has happened before.
LAST_OF_ALL = "dead_letter.acknowledged"
MINUTES = 3
_START_SECONDS = 60
_END_SECONDS = 40


@asynccontextmanager
async def running_demo(folder: Path) -> AsyncIterator[str]:
    """The demo; yields the address of its console."""
    demo = await asyncio.create_subprocess_exec(
        *(ROOT / "examples" / "demo", "--data", folder),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert demo.stdout is not None
    listening: asyncio.Task[bytes] | None = None
    try:
        async with asyncio.timeout(_START_SECONDS):
            address = await _address(demo.stdout)
        # Keep reading, or the demo would block on its output.
        listening = asyncio.create_task(demo.stdout.read())
        yield address
    finally:
        os.killpg(demo.pid, signal.SIGINT)
        try:
            async with asyncio.timeout(_END_SECONDS):
                await demo.wait()
        except TimeoutError:
            os.killpg(demo.pid, signal.SIGKILL)
            await demo.wait()
        if listening is not None:
            await listening


async def _address(output: asyncio.StreamReader) -> str:
    """Where the console is, as the demo prints it."""
    said = b""
    while line := await output.readline():
        said += line
        if found := re.search(rb"console: (\S+)", line):
            return found[1].decode()
    raise SystemExit(f"the demo did not start:\n{said.decode()}")


async def _sign_in_link(data: Path) -> str:
    command = await asyncio.create_subprocess_exec(
        *("uv", "run", "--quiet", "headway", "sign-in", "--data", data),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await command.communicate()
    return printed.decode().strip()


async def open_page(browser: Browser, link: str, *, scheme: str = "light") -> Page:
    """A page of the person at this machine, who has signed in."""
    context = await browser.new_context(
        viewport=WIDE, color_scheme=scheme, timezone_id=ZONE, locale="en-GB"
    )
    page = await context.new_page()
    await page.goto(link)
    return page


async def take(page: Page, base: str, path: str, file: Path) -> None:
    """One picture of one page, when its times are written."""
    await page.goto(base + path)
    await expect(page.get_by_role("heading", level=1)).to_be_visible()
    await page.screenshot(path=file, animations="disabled")


async def take_nightly(browser: Browser, folder: Path) -> None:
    """A nightly job, and the reason why it did not run in one night."""
    with tempfile.TemporaryDirectory(prefix="headway-nightly-") as data:
        async with running_nightly(Path(data)) as base:
            page = await open_page(browser, base + local_link())
            await page.set_viewport_size(NIGHTLY)
            day = night(DISABLED[0]).date()
            await page.goto(f"{base}/manifests/{MANIFEST}?day={day}")
            await expect(page.locator("#day .why").first).to_contain_text("disabled")
            box = await page.locator("#day").bounding_box()
            assert box is not None
            shown: Any = {
                "x": 0,
                "y": 0,
                "width": NIGHTLY["width"],
                "height": box["y"] + box["height"],
            }
            await page.screenshot(
                path=folder / "nightly.png", animations="disabled", full_page=True, clip=shown
            )


async def take_demo(browser: Browser, base: str, data: Path, folder: Path) -> None:
    """Every picture of the demo, light ones first."""
    page = await open_page(browser, await _sign_in_link(data))
    await page.goto(f"{base}/audit")
    await expect(page.get_by_text(LAST_OF_ALL).first).to_be_visible(timeout=60_000)
    await take(page, base, "/dead-letters", folder / "dead-letters.png")
    await take(page, base, "/work", folder / "work-queue.png")
    await page.set_viewport_size(TALL)
    await page.goto(f"{base}/manifests/sync-tony")
    await page.locator(".calendar .today a").click()
    await expect(page.locator("#day .why").first).to_contain_text("disabled")
    await page.evaluate("() => scrollTo(0, 0)")
    await page.screenshot(path=folder / "schedule.png", animations="disabled")

    dark = await open_page(browser, await _sign_in_link(data), scheme="dark")
    await take(dark, base, "/manifests", folder / "schedules-dark.png")
    await dark.goto(f"{base}/runs?state=in_progress&job=stocktaking")
    await dark.locator("#list tbody tr a").first.click(timeout=60_000)
    await expect(dark.get_by_role("log")).to_be_visible(timeout=30_000)
    await dark.screenshot(path=folder / "run-dark.png", animations="disabled")

    await page.set_viewport_size(WIDE)
    await page.goto(f"{base}/")
    # A few minutes of history, which the page shows as they go by.
    await expect(page.locator(".chart rect.good")).to_have_count(MINUTES, timeout=240_000)
    await take(page, base, "/", folder / "overview.png")
    await page.set_viewport_size(PHONE)
    await take(page, base, "/", folder / "phone.png")


async def run(folder: Path, chromium: str) -> None:
    """Start everything, take them, end everything."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            await take_nightly(browser, folder)
            with tempfile.TemporaryDirectory(prefix="headway-screenshots-") as data:
                async with running_demo(Path(data)) as address:
                    await take_demo(browser, address, Path(data), folder)
        finally:
            await browser.close()


def main() -> None:
    """Take them into the folder that is named."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("HEADWAY_CHROMIUM") or shutil.which("chromium")
    if not chromium:
        raise SystemExit(
            "there is no Chromium: 'apt-get install chromium', or set HEADWAY_CHROMIUM"
        )
    asyncio.run(run(folder, chromium))
    for file in sorted(folder.glob("*.png")):
        sys.stdout.write(f"{file} {file.stat().st_size // 1024} kB\n")


if __name__ == "__main__":
    main()
