"""The frame of every page: the way in, the navigation, the keys, and news."""

import pytest
from playwright.async_api import Browser, Page, expect
from support.browsers import NARROW, System, check_fits, look_closely, open_page

pytestmark = pytest.mark.thorough


async def test_somebody_signs_in_with_a_token_and_out_again(chromium: Browser, system: System):
    async with open_page(chromium, system, role="viewer") as page:
        await expect(page.locator(".who")).to_contain_text("ada-viewer")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Token")).to_be_visible()
        await look_closely(page, "sign-in")


async def test_the_navigation_works_on_a_phone(page: Page):
    await page.goto("/")
    await page.set_viewport_size({"width": NARROW, "height": 800})
    for link in await page.locator(".top nav a").all():
        await link.click()
        await expect(page.locator(".top nav [aria-current=page]")).to_be_in_viewport()
        await check_fits(page)


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
    await page.set_viewport_size({"width": NARROW, "height": 800})
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
    answer = await page.goto("/nothing-here")
    assert answer is not None
    assert answer.status == 404
    await expect(page.get_by_role("heading", level=1)).to_contain_text("No such page")
