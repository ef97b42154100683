"""Seven tasks of an operator, each with three clicks from the overview at most.

The first of them, why something did not run at its time, is in `test_why.py`. `tests/e2e/test_tasks.py`
does each of them with one command.
"""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from support.browsers import System, run_system, three_clicks
from support.servers import TestPostgres
from support.troubled_app import TroubledApp


@pytest_asyncio.fixture(scope="module")
async def system(
    chromium: Browser, postgres: TestPostgres, tmp_path_factory
) -> AsyncIterator[System]:
    """A system with a dead letter."""
    app: Any = TroubledApp()
    async with run_system(postgres, tmp_path_factory.mktemp("system"), app) as made:
        async with made.world.client("ada") as client:
            await client.enqueue("ship", {"item": "needle", "pieces": 7})
        await made.world.until("SELECT true FROM dispatcher.dead_letter")
        yield made


async def trigger(system: System, manifest: str) -> Any:
    async with system.world.client("ada") as client:
        return (await client.trigger(manifest)).work


async def test_what_waits_and_for_what(page: Page, system: System):
    system.shown.hold()
    await trigger(system, "archive")
    second = await trigger(system, "archive-2")
    await system.world.until(
        "SELECT reason = 'group_cap' FROM dispatcher.waiting WHERE id = $1", second
    )
    async with three_clicks(page):
        await page.get_by_role("link", name="Work queue").click()
        row = page.locator("tr").filter(has_text="archive-2")
        await row.get_by_role("link", name="the group limit").click()
        await expect(page.locator(".gates .closed")).to_contain_text("1 of 1 active in group")
    system.shown.release()


async def test_the_log_of_a_run_is_followed_live(page: Page, system: System):
    system.shown.hold()
    await trigger(system, "archive")
    async with three_clicks(page):
        await page.get_by_role("link", name="Runs", exact=True).click()
        row = page.locator("#list tr").filter(has_text="half way").first
        await row.get_by_role("link").first.click()
        for line in ("first line", "second line"):
            system.shown.say(line)
            await expect(page.get_by_role("log")).to_contain_text(line)
    system.shown.release()


async def test_a_run_is_found_by_its_input(page: Page, system: System):
    async with three_clicks(page):
        await page.get_by_role("link", name="Runs", exact=True).click()
        await page.get_by_label("Text").fill("needle")
        await page.keyboard.press("Enter")
        await expect(page.locator("#list tbody tr")).to_have_count(2)
        await page.locator("#list tbody tr a").first.click()
        await expect(page.locator("#input")).to_contain_text("needle")


async def test_which_job_fails_most(page: Page, system: System):
    async with three_clicks(page):
        card = page.locator("section").filter(has=page.get_by_role("heading", name="Failing"))
        await expect(card.locator("tbody tr").first).to_contain_text("ship")
        await card.get_by_role("link", name="ship").click()
        await expect(page.locator("#list tbody tr")).to_have_count(2)


async def test_a_dead_letter_is_retried_with_an_edited_input(page: Page, system: System):
    system.shown.broken = False
    async with three_clicks(page):
        card = page.locator("section").filter(
            has=page.get_by_role("heading", name="Dead letters needing attention")
        )
        await card.get_by_role("link", name="ValueError").click()
        await page.locator("#list tbody a").first.click()
        await page.get_by_label("Input (JSON)").fill(json.dumps({"item": "chair"}))
        await page.get_by_role("button", name="Retry", exact=True).click()
        await expect(page.locator(".flash.good")).to_be_visible()
    await system.world.until(
        "SELECT true FROM dispatcher.run WHERE output = $1", {"shipped": "chair"}
    )
