"""Pauses: a banner with a countdown on every page, and a button that ends one of them."""

import re

from playwright.async_api import Page, expect
from support.browsers import System, check_accessible, look_closely

PAGES = ("/", "/manifests", "/manifests/import", "/runs", "/work", "/pauses")


async def test_a_pause_of_all_shows_on_every_page_until_it_is_ended(system: System, page: Page):
    async with system.world.client("ada") as client:
        await client.pause("import", reason="mine")
    await page.goto("/manifests")
    await expect(page.locator("#paused")).to_be_hidden()
    await page.get_by_role("link", name="Pauses").click()
    await expect(page.get_by_role("row").filter(has_text="mine")).to_contain_text("when resumed")
    await page.get_by_label("Hours").fill("0.1")
    await page.get_by_label("Reason").fill("the disk is <b>full</b>")
    await page.get_by_role("button", name="Pause", exact=True).click()
    # It says what it hits and how many.
    question = page.locator("#confirm-text")
    await expect(question).to_have_text(re.compile(r"^Pause all manifests \(\d+\), also manifests"))
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_contain_text("other pauses hold 1 of them longer")
    banner = page.get_by_role("complementary", name="Banner")
    for path in PAGES:
        await page.goto(path)
        await expect(banner).to_contain_text("All manifests are paused by")
        await expect(banner).to_contain_text("the disk is <b>full</b>")
        await expect(banner.locator("[data-countdown]")).to_have_text(re.compile(r"^[56]:\d\d$"))
    await look_closely(page, "pauses")
    await page.goto("/manifests/import")
    notice = page.locator(".flash.notice")
    await expect(notice.get_by_role("button", name="Resume")).to_have_count(2)
    await expect(notice.locator(".why")).to_contain_text("resumes when the last of them has ended")
    await check_accessible(page)
    # The banner goes without a reload.
    await page.goto("/manifests")
    async with system.world.client("ada") as client:
        [everything] = [pause for pause in await client.pauses() if not pause.manifests]
        await client.resume(pauses=[everything.id])
    await expect(page.locator("#paused")).to_be_hidden()
    await page.goto("/pauses")
    await page.get_by_role("row").filter(has_text="mine").get_by_role("button").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_contain_text("1 manifest resumed")
    await expect(page.get_by_text("No pause is in force")).to_be_visible()
    await check_accessible(page)


async def test_a_group_or_a_label_is_paused(page: Page):
    await page.goto("/pauses")
    for choice, covered in (
        ("group:reports", "group reports"),
        ("label:team=billing", "label team"),
    ):
        await page.get_by_label("Manifests").select_option(choice)
        await page.get_by_role("button", name="Pause", exact=True).click()
        await expect(page.locator("#confirm-text")).to_contain_text(f"Pause {covered}")
        await page.locator("#confirm-yes").click()
        row = page.get_by_role("row").filter(has_text=covered)
        await expect(row).to_contain_text("when resumed")
        await row.get_by_role("button").click()
        await page.locator("#confirm-yes").click()
        await expect(row).to_have_count(0)
    await page.get_by_label("Hours").fill("soon")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.bad")).to_contain_text("Invalid number of hours 'soon'")
