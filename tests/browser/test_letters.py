"""Dead letters as people see to them: one, many, and all of a failure with a canary before."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect
from support.browsers import System, look_closely, run_system
from support.servers import TestPostgres
from support.troubled_app import TroubledApp

AWAITING = "SELECT count(*) = $1 FROM dispatcher.dead_letter WHERE state = 'awaiting'"


@pytest_asyncio.fixture(scope="module")
async def system(
    chromium: Browser, postgres: TestPostgres, tmp_path_factory: Any
) -> AsyncIterator[System]:
    """A system whose jobs fail when the test says so."""
    app: Any = TroubledApp()
    async with run_system(postgres, tmp_path_factory.mktemp("system"), app) as made:
        yield made


async def fail(system: System, many: int, item: str = "lamp") -> None:
    """Let so many pieces of work become dead letters of one failure, and nothing else be one."""
    system.shown.broken = True
    async with system.world.client("ada") as client:
        left = [letter.dead_letter for letter in await client.dead_letters()]
        if left:
            await client.acknowledge(*left)
        for number in range(many):
            await client.enqueue("ship", {"item": item, "pieces": number + 1})
    await system.world.until(AWAITING, many, within=40)


async def confirm(page: Page) -> None:
    await page.locator("#confirm-yes").click()


async def test_letters_of_one_failure_are_one_entry(page: Page, system: System):
    await fail(system, 3)
    await page.goto("/dead-letters")
    await expect(page.locator(".failures li")).to_have_count(1)
    await expect(page.get_by_text("3 \u00d7 ValueError")).to_be_visible()
    await expect(page.locator(".failures p")).to_contain_text('"><script>alert(2)</script>')
    await look_closely(page, "dead-letters")
    await page.get_by_role("link", name="3 \u00d7 ValueError").click()
    await expect(page.locator("#list tbody tr")).to_have_count(3)
    await look_closely(page, "letters")


async def test_an_input_is_edited_under_the_eye_of_its_schema(page: Page, system: System):
    await fail(system, 1)
    await page.goto("/dead-letters/list?state=awaiting")
    await page.locator("#list tbody a").first.click()
    await expect(page.locator(".attempt")).to_have_count(2)
    await page.get_by_label("Input (JSON)").fill('{"item": 7}')
    await expect(page.locator("#input-check")).to_contain_text("item")
    await look_closely(page, "letter")
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator("#input-check")).to_contain_text("item")
    await page.get_by_label("Input (JSON)").fill("{")
    await expect(page.locator("#input-check")).to_contain_text("invalid JSON")
    system.shown.broken = False
    await page.get_by_label("Input (JSON)").fill('{"item": "chair", "pieces": 2}')
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".flash.good")).to_be_visible()
    await system.world.until(
        'SELECT true FROM dispatcher.run WHERE output = \'{"shipped": "chair"}\''
    )


async def test_text_typed_before_the_scripts_have_loaded_is_checked(page: Page, system: System):
    await fail(system, 1)
    await page.goto("/dead-letters/list?state=awaiting")
    letter = await page.locator("#list tbody a").first.get_attribute("href")
    held: asyncio.Queue[Route] = asyncio.Queue()
    await page.route("**/htmx.min.js*", held.put)
    await page.goto(str(letter), wait_until="commit")
    script = await held.get()
    await page.get_by_label("Input (JSON)").fill('{"item": 7}')
    await script.continue_()
    await expect(page.locator("#input-check")).to_contain_text("item")


async def test_checked_letters_are_retried_and_put_away_with_a_note(page: Page, system: System):
    await fail(system, 4)
    await page.goto("/dead-letters/list?state=awaiting")
    await page.locator("#list tbody input[type=checkbox]").nth(0).check()
    await page.locator("#list tbody input[type=checkbox]").nth(1).check()
    await page.get_by_label("Note").fill("known <b>trouble</b>")
    await page.get_by_role("button", name="Acknowledge", exact=True).click()
    await confirm(page)
    await expect(page.locator(".flash.good")).to_contain_text("2 acknowledged")
    await expect(page.locator("#list tbody tr")).to_have_count(2)
    system.shown.broken = False
    await page.get_by_label("Select all").check()
    await page.get_by_role("button", name="Retry", exact=True).click()
    await expect(page.locator(".flash.good")).to_contain_text("2 run again")
    await page.goto("/dead-letters/list?state=acknowledged")
    await expect(page.get_by_text("known <b>trouble</b>").first).to_be_visible()


@pytest.mark.thorough
async def test_a_canary_goes_through_all_of_them_once_the_failure_is_gone(
    page: Page, system: System
):
    await fail(system, 14)
    system.shown.broken = False
    await page.goto("/dead-letters")
    await page.get_by_role("button", name="Retry gradually").click()
    await confirm(page)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("finished")
    await expect(page.locator(".steps li").nth(0)).to_contain_text("1 completed")
    await expect(page.locator(".steps li").nth(1)).to_contain_text("10 completed")
    await expect(page.locator(".steps li").nth(2)).to_contain_text("3 completed")
    await look_closely(page, "canary-finished")
    by = await system.world.rows(
        "SELECT DISTINCT actor FROM dispatcher.dead_letter WHERE state = 'retried' AND"
        " created_at > now() - interval '1 minute'"
    )
    assert "me" in {row["actor"] for row in by}


async def test_a_canary_stops_by_itself_when_the_failure_comes_back(page: Page, system: System):
    await fail(system, 5)
    await page.goto("/dead-letters")
    await page.get_by_role("button", name="Retry gradually").click()
    await confirm(page)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("stopped")
    await expect(page.locator(".lead")).to_contain_text("the same failure returned for 1 letter")
    await look_closely(page, "canary-stopped")
    await system.world.until(AWAITING, 5)
    await page.reload()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("stopped")


@pytest.mark.thorough
async def test_all_of_a_failure_are_retried_at_once(page: Page, system: System):
    await fail(system, 2)
    system.shown.broken = False
    await page.goto("/dead-letters")
    await page.get_by_role("link", name="2 \u00d7 ValueError").click()
    await page.get_by_role("button", name="Retry all").click()
    await confirm(page)
    await expect(page.locator(".flash.good")).to_contain_text("2 run again")
    await page.goto("/dead-letters")
    await expect(page.get_by_text("No open dead letters")).to_be_visible()
