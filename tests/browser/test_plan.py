"""Definitions pasted or uploaded: the plan, and the applying."""

import pytest
from playwright.async_api import Browser, Page, expect
from support.browsers import System, look_closely, open_page

pytestmark = pytest.mark.thorough

FIRST = """\
app: warehouse
jobs:
  count: {takes_input: false}
manifests:
  stocktaking: {job: count, daily: 03:15}
"""


async def test_a_plan_is_seen_before_it_is_applied(system: System, page: Page):
    await page.goto("/plan")
    await look_closely(page, "plan-empty")
    await page.get_by_label("Definitions in YAML").fill(FIRST)
    await page.get_by_role("button", name="Show the plan").click()
    await expect(page.locator("#answer")).to_contain_text("1 created")
    assert await found(system) == []
    await page.get_by_role("button", name="Apply").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_contain_text("Applied warehouse: 1 created")
    assert await found(system) == ["stocktaking"]

    later = {
        "name": "later.yaml",
        "mimeType": "text/yaml",
        "buffer": FIRST.replace("03:15", "04:45").encode(),
    }
    await page.get_by_label("or upload a file").set_input_files(later)
    await page.get_by_role("button", name="Show the plan").click()
    await expect(page.locator("#answer")).to_contain_text("1 moved")
    await expect(page.locator("#answer li").filter(has_text="appears").first).to_contain_text(
        "04:45"
    )
    await look_closely(page, "plan")


async def test_problems_are_told_with_their_lines(page: Page):
    await page.goto("/plan")
    await page.get_by_label("Definitions in YAML").fill(FIRST.replace("03:15", "nonsense"))
    await page.get_by_role("button", name="Show the plan").click()
    await expect(page.get_by_role("alert")).to_contain_text("line 5")


async def test_a_path_is_never_read(page: Page):
    await page.goto("/plan")
    await page.get_by_label("Definitions in YAML").fill("examples/headway.yaml")
    await page.get_by_role("button", name="Show the plan").click()
    await expect(page.get_by_role("alert")).not_to_contain_text("cannot be read")
    await expect(page.locator("#answer")).to_have_count(0)


async def test_only_an_admin_applies(chromium: Browser, system: System):
    async with open_page(chromium, system, role="operator") as page:
        await page.goto("/plan")
        await page.get_by_label("Definitions in YAML").fill(FIRST.replace("stocktaking", "other"))
        await page.get_by_role("button", name="Show the plan").click()
        await expect(page.get_by_text("Applying needs the role admin.")).to_be_visible()
        await expect(page.get_by_role("button", name="Apply")).to_have_count(0)
        answer = await page.request.post("/plan/apply", form={"text": FIRST})
        assert answer.status == 403


async def found(system: System) -> list[str]:
    rows = await system.world.rows(
        "SELECT external_id FROM scheduler.manifest WHERE owner = 'warehouse'"
    )
    return [row["external_id"] for row in rows]
