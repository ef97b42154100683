"""Pages of jobs, groups, workers and dependencies: each lists everything that belongs to it."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Page, expect
from support.browsers import System, look_closely

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def something_failed(system: System) -> AsyncIterator[None]:
    """A run that failed, of the manifest `import`."""
    async with system.console.signed_in("operator") as client:
        await client.post("/api/v1/manifests/import/trigger", json={})
    await system.world.until("SELECT true FROM dispatcher.metadata WHERE state = 'failed'")
    yield


async def test_a_job_lists_its_manifests_runs_workers_and_limits(page: Page):
    await page.goto("/jobs")
    row = page.get_by_role("region", name="Jobs").get_by_role("row").filter(has_text="broken")
    await expect(row).to_contain_text("100 %")
    await look_closely(page, "jobs")
    await row.get_by_role("link", name="broken").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("broken")
    runs = page.get_by_role("region", name="Latest runs")
    await expect(runs).to_contain_text("ValueError")
    manifests = page.get_by_role("region", name="Manifests")
    await expect(manifests.get_by_role("link", name="import", exact=True)).to_be_visible()
    await expect(page.get_by_role("region", name="Workers").get_by_role("link")).to_have_count(1)
    await page.get_by_label("Rate", exact=True).fill("100/minute")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Rate", exact=True)).to_have_value("100/minute")
    await look_closely(page, "job")
    await page.get_by_role("button", name="Reset to code").click()
    await expect(page.get_by_label("Rate", exact=True)).to_have_value("")


async def test_a_group_lists_its_manifests_jobs_and_failures(page: Page):
    await page.goto("/manifests/import")
    await page.locator("#status").get_by_role("link", name="reports", exact=True).click()
    failures = page.get_by_role("region", name="Recent failures")
    await expect(failures).to_contain_text("ValueError")
    await expect(page.locator("#jobs").get_by_role("link", name="broken")).to_be_visible()
    await expect(page.locator("#manifests").get_by_role("link", name="import")).to_be_visible()
    await look_closely(page, "group")


async def test_a_worker_lists_its_leases_runs_and_jobs(page: Page):
    await page.goto("/workers")
    await page.locator("#list tbody a").first.click()
    await expect(page.get_by_role("region", name="Running and recent runs")).to_contain_text(
        "import"
    )
    await expect(page.get_by_text("slots in use")).to_be_visible()
    await expect(page.get_by_role("link", name="broken").last).to_have_attribute(
        "href", "/jobs/broken"
    )
    await look_closely(page, "worker")


async def test_the_map_shows_every_chain_and_finds_the_ones_with_problems(page: Page):
    await page.goto("/dependencies")
    drawing = page.get_by_role("region", name="Dependents of nightly-report")
    await expect(drawing.get_by_role("link")).to_have_count(2)
    await look_closely(page, "dependencies")
    await page.get_by_label("Search", exact=True).fill("no-such-manifest")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("No matching manifests")).to_be_visible()


async def test_a_bar_of_the_overview_opens_its_runs(page: Page):
    await page.goto("/")
    bar = page.locator(".chart a").last
    title = await bar.get_attribute("aria-label")
    await bar.click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    await expect(page.locator("#list tbody tr").first).to_be_visible()
    assert title
    await expect(page.get_by_label("Ended since")).not_to_have_value("")
