"""Groups: their limits changed and given back, switched off and on."""

import pytest
from playwright.async_api import Page, expect
from support.browsers import System, look_closely


async def test_limits_are_seen_and_changed(system: System, page: Page):
    await page.goto("/groups")
    row = page.get_by_role("row").filter(has_text="slow")
    await expect(row).to_contain_text("0 / 1")
    await look_closely(page, "groups")
    await row.get_by_role("link", name="slow").click()
    await page.get_by_label("Active at once").fill("4")
    await page.get_by_label("Rate").fill("100/minute")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash.good")).to_be_visible()
    stored = "SELECT (max_active, rate ->> 'count')::text FROM scheduler.manifest_group WHERE name = 'slow'"
    assert await system.world.value(stored) == "(4,100)"
    await look_closely(page, "group")
    overrides = page.locator("section").filter(has=page.get_by_role("heading", name="Overrides"))
    await expect(overrides).to_contain_text("active at once: overridden")
    await overrides.get_by_role("button", name="Reset to code").first.click()
    await expect(overrides).to_contain_text("active at once: from code")


async def test_what_cannot_be_read_is_told_and_changes_nothing(system: System, page: Page):
    await page.goto("/groups/reports")
    await page.get_by_label("Rate").fill("often")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash.bad")).to_contain_text("100/minute")
    stored = "SELECT rate FROM scheduler.manifest_group WHERE name = 'reports'"
    assert await system.world.value(stored) is None


async def test_a_group_is_held_and_let_go(system: System, page: Page):
    await page.goto("/groups/hello")
    await page.get_by_role("button", name="Disable").click()
    await page.locator("#confirm-yes").click()
    await expect(page.get_by_text("No work of this group starts.")).to_be_visible()
    await page.goto("/groups")
    await page.get_by_label("Select hello").check()
    await page.get_by_role("button", name="Enable").click()
    await expect(page.get_by_role("row").filter(has_text="hello")).to_contain_text("enabled")
    stored = "SELECT enabled FROM scheduler.manifest_group WHERE name = 'hello'"
    assert await system.world.value(stored) is True


@pytest.mark.thorough
async def test_what_is_active_shows_without_a_reload(system: System, page: Page):
    system.shown.hold()
    await page.goto("/groups")
    await expect(page.locator("body[data-listening]")).to_be_attached()
    row = page.get_by_role("row").filter(has_text="slow")
    async with system.console.signed_in("operator") as client:
        await client.post("/api/v1/manifests/archive/trigger", json={})
    await expect(row).to_contain_text("1 / ")
    system.shown.release()
    await expect(row).to_contain_text("0 / ")
