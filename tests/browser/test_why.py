"""A new user asks: why did the report not run at 02:30? Three clicks."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from playwright.async_api import Page, expect
from support.browsers import System, check_accessible, look_closely

BERLIN = ZoneInfo("Europe/Berlin")
# Over all pages of a visit.
COUNT_CLICKS = """addEventListener("click", (event) => {
    if (event.isTrusted && event.detail) sessionStorage.clicks = Number(sessionStorage.clicks || 0) + 1;
}, true);"""


async def test_why_did_the_report_not_run_at_half_past_two(system: System, page: Page):
    missed = last_half_past_two()
    await was_disabled_around(system, missed)

    await page.add_init_script(COUNT_CLICKS)
    await page.goto("/")
    await page.get_by_role("link", name="nightly-report").click()
    cell = page.get_by_role("link", name=f"{missed:%d %B}: ")
    if not await cell.count():  # yesterday was in the month before, and not in this grid
        await page.get_by_role("link", name="Earlier").click()
    await expect(cell).to_contain_text("skipped")
    await cell.click()

    line = page.locator("#day li").first
    await expect(line).to_contain_text("02:30")
    await expect(line.locator(".why")).to_contain_text("it was disabled")
    await expect(line.locator(".why")).to_contain_text("It is enabled again.")
    assert await page.evaluate("() => Number(sessionStorage.clicks)") <= 3
    await look_closely(page, "why")


async def test_the_same_from_the_search(system: System, page: Page):
    """A person who does not see it on the overview finds it by its name."""
    due = last_half_past_two()
    await was_disabled_around(system, due)
    await page.add_init_script(COUNT_CLICKS)
    await page.goto("/")
    await page.keyboard.press("/")
    await page.keyboard.type("nightly")
    await page.keyboard.press("Enter")
    await (
        page.get_by_role("region", name="Manifests")
        .get_by_role("link", name="nightly-report", exact=True)
        .first.click()
    )
    cell = page.get_by_role("link", name=f"{due:%d %B}: ")
    if not await cell.count():
        await page.get_by_role("link", name="Earlier").click()
    await cell.click()
    await expect(page.locator("#day li .why").first).to_contain_text("it was disabled")
    assert await page.evaluate("() => Number(sessionStorage.clicks)") <= 3


async def test_any_time_of_a_day_can_be_asked_about(system: System, page: Page):
    await page.goto(f"/manifests/nightly-report?day={datetime.now(BERLIN).date()}")
    await page.get_by_label("Explain the time").fill("14:05")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("#day [role=status]")).to_contain_text("is no due time")
    await page.get_by_label("Explain the time").fill("half past")
    await page.get_by_role("button", name="Explain").click()
    await expect(page.locator("#day [role=status]")).to_contain_text("write 02:30")


async def test_what_a_pause_holds_shows_while_it_lasts(system: System, page: Page):
    """Nothing is written down until a pause ends; the calendar tells of it already."""
    async with system.console.signed_in("operator") as client:
        await client.patch("/api/v1/manifests/archive", json={"enabled": False})
    due: datetime = await system.world.value(
        "SELECT next_due_at - interval '1 day' FROM scheduler.manifest"
        " WHERE external_id = 'archive'"
    )
    await backdate(system, "archive", due)
    await page.goto(f"/manifests/archive?day={due.astimezone(UTC).date()}")
    held = page.locator("#day li").first
    await expect(held).to_contain_text("not fired")
    await expect(held.locator(".why")).to_contain_text("it is disabled")
    await check_accessible(page)


def last_half_past_two() -> datetime:
    """Yesterday's; the day before's if the clock went forward then and passed it over."""
    due = datetime.combine(datetime.now(BERLIN).date() - timedelta(days=1), time(2, 30), BERLIN)
    is_there = due.astimezone(UTC).astimezone(BERLIN).time() == due.time()
    return due if is_there else due - timedelta(days=1)


async def was_disabled_around(system: System, due_at: datetime) -> None:
    """As if the report had been disabled before a time, and enabled only now."""
    async with system.console.signed_in("operator") as client:
        await client.patch("/api/v1/manifests/nightly-report", json={"enabled": False})
        await backdate(system, "nightly-report", due_at)
        answer = await client.patch("/api/v1/manifests/nightly-report", json={"enabled": True})
    assert answer.status_code == 200, answer.text
    await system.world.until(
        "SELECT count(*) FROM scheduler.occurrence JOIN scheduler.manifest"
        " ON manifest.id = manifest_id WHERE external_id = 'nightly-report'"
    )


async def backdate(system: System, manifest: str, due_at: datetime) -> None:
    """Date a declaration back, with no decision since a time."""
    await system.world.value(
        "WITH backdated AS (UPDATE scheduler.manifest SET next_due_at = $2,"
        " declared_at = declared_at - interval '30 days' WHERE external_id = $1 RETURNING id)"
        " UPDATE scheduler.timing SET since = since - interval '30 days'"
        " FROM backdated WHERE manifest_id = backdated.id",
        manifest,
        due_at,
    )
