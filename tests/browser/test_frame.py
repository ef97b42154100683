"""The frame of every page: the way in, the navigation, the keys, and news."""

import re

import pytest
from headway_console.pages import PAGES
from playwright.async_api import Browser, Page, expect
from support.browsers import System, check_fits, look_closely, open_page

pytestmark = pytest.mark.thorough

PHONE = 390
# Cells of cards whose label is not the text of their column.
UNLABELLED = """() => [...document.querySelectorAll("table.stack")].flatMap((table) => {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
  return [...table.querySelectorAll("tbody tr")].flatMap((row) => [...row.cells]
    .filter((cell, place) => row.cells.length === heads.length && cell.textContent.trim()
      && !cell.matches(".select") && cell.dataset.label !== heads[place])
    .map((cell) => cell.outerHTML.slice(0, 200)));
})"""


async def test_somebody_signs_in_with_a_token_and_out_again(chromium: Browser, system: System):
    async with open_page(chromium, system, role="viewer") as page:
        await expect(page.locator(".who")).to_contain_text("ada-viewer")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await look_closely(page, "sign-in")


async def test_the_navigation_works_on_a_phone_and_every_page_is_readable_there(page: Page):
    await page.set_viewport_size({"width": PHONE, "height": 800})
    await page.goto("/")
    menu = page.locator(".menu")
    for place in range(len(PAGES)):
        await menu.locator("summary").click()
        link = menu.get_by_role("link").nth(place)
        title = await link.text_content()
        await link.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(str(title))
        await expect(menu.locator("[aria-current=page]")).to_have_text(str(title))
        await check_fits(page)
        assert await page.evaluate(UNLABELLED) == [], page.url


async def test_keys_list_themselves(page: Page):
    await page.goto("/")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_hidden()


async def test_g_and_a_letter_leads_to_a_page(page: Page):
    await page.goto("/")
    await page.keyboard.press("g")
    await page.keyboard.press("m")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Manifests")
    await page.keyboard.press("/")
    await page.keyboard.type("go")  # in a field letters are letters
    await expect(page.get_by_label("Search")).to_have_value("go")


async def test_who_goes_by_keys_or_moved_a_table_stays_there_when_the_page_changes(page: Page):
    await page.set_viewport_size({"width": 660, "height": 800})  # wider than cards
    await page.goto("/workers")
    link = page.locator("#list tbody a").first
    await expect(page.locator("body[data-listening]")).to_be_attached()
    await link.focus()
    await page.get_by_role("region", name="Workers").evaluate("(one) => { one.scrollLeft = 40 }")
    beat = page.locator("#list tbody time").first
    heard = await beat.get_attribute("datetime")
    await expect(beat).not_to_have_attribute("datetime", heard or "")
    await expect(link).to_be_focused()
    region = page.get_by_role("region", name="Workers")
    assert await region.evaluate("(one) => one.scrollLeft") == 40


async def test_a_page_that_is_not_there_says_so(page: Page):
    for path, status, title in (
        ("/nothing-here", 404, "No such page"),
        ("/workers/drain", 405, "Method not allowed"),
        ("/jobs/nothing", 404, "Not found"),
    ):
        answer = await page.goto(path)
        assert answer is not None
        assert answer.status == status
        await expect(page.get_by_role("heading", level=1)).to_have_text(title)
        await expect(page.locator(".side").get_by_role("link", name="Runs")).to_be_visible()
        await expect(page.locator(".who")).to_contain_text("me")
    await look_closely(page, "not-found")


async def test_everything_is_found_with_the_keyboard(page: Page, system: System):
    await page.goto("/runs")
    await page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Find anything")
    await expect(dialog.get_by_role("link", name="Runs")).to_be_attached()  # pages, before a letter
    await page.keyboard.type("nightly re")
    await expect(dialog.get_by_role("link")).to_have_count(1)
    await expect(dialog.locator(".results")).to_have_attribute("data-text", "nightly re")
    await look_closely(page, "search")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("nightly-report")
    await page.keyboard.press("Meta+k")
    await page.keyboard.type("mail")
    links = dialog.get_by_role("link")
    await expect(links.first).to_contain_text("mail")
    await expect(links).not_to_have_count(1)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowDown")
    await expect(links.nth(1)).to_be_focused()
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("ArrowUp")
    await expect(dialog.get_by_role("searchbox")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()


async def test_search_needs_no_script(chromium: Browser, system: System):
    async with system.console.signed_in("operator") as client:
        answer = await client.post("/api/v1/manifests/nightly-report/trigger", json={})
    work = answer.json()["work"]
    await system.world.until("SELECT true FROM dispatcher.work_queue WHERE id = $1", work)
    async with open_page(chromium, system, java_script_enabled=False) as page:
        await page.goto("/runs")
        await page.get_by_role("link", name="Search").click()
        await page.get_by_role("searchbox").fill("nightly-report")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("region", name="Manifests")).to_contain_text("nightly-report")
        await page.goto(f"/search?q={work[:9]}")
        await expect(page.locator(f"a[href='/work/{work}']")).to_be_visible()
        await page.goto("/search?q=there-is-no-such-thing")
        await expect(page.locator("main .results")).to_contain_text("Nothing found")


async def test_all_times_follow_the_chosen_zone(chromium: Browser, system: System):
    async with open_page(chromium, system, timezone_id="Asia/Tokyo") as page:
        await page.goto("/")
        await page.goto("/workers")
        heard = page.locator("#list time").first
        await expect(page.get_by_label("Times in")).to_have_value("browser")
        await expect(heard).to_have_attribute("title", re.compile("GMT\\+9"))
        async with page.expect_navigation():
            await page.get_by_label("Times in").select_option("UTC")
        await expect(heard).to_have_attribute("title", re.compile(" UTC "))
        assert page.url.endswith("/workers")
        await page.goto("/")  # remembered
        await expect(page.locator("figcaption")).to_contain_text("by time in UTC")
        async with page.expect_navigation():
            await page.get_by_label("Times in").select_option("manifest")
        await page.goto("/manifests?text=nightly")
        await expect(page.locator("#list time").first).to_have_attribute(
            "title", re.compile("CES?T|GMT\\+[12] ")
        )
    # Without scripts the server writes the times, and the choice has a button.
    async with open_page(chromium, system, java_script_enabled=False) as page:
        await page.goto("/workers")
        await page.get_by_label("Times in").select_option("utc")
        await page.get_by_role("button", name="Set").click()
        await expect(page.locator("#list time").first).to_contain_text(" UTC")
