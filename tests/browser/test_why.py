"""A new user asks: why did the report not run at 02:30? Three clicks."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.async_api import Page, expect
from support.browsers import System, check_accessible, look_closely, three_clicks

BERLIN = ZoneInfo("Europe/Berlin")


async def test_why_did_the_report_not_run_at_half_past_two(system: System, page: Page):
    missed = last_half_past_two()
    await was_disabled_around(system, missed)

    async with three_clicks(page):
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
    await look_closely(page, "why")


@pytest.mark.thorough
async def test_the_same_from_the_search(system: System, page: Page):
    """A person who does not see it on the overview finds it by its name."""
    due = last_half_past_two()
    await was_disabled_around(system, due)
    async with three_clicks(page):
        await page.keyboard.type("gm")
        await expect(page.get_by_role("heading", level=1)).to_have_text("Manifests")
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


async def test_a_day_with_many_fires_is_a_bounded_map(system: System, page: Page):
    """A job every five seconds: the day, the five minutes with a failure, and why."""
    day = datetime.now(UTC).date() - timedelta(days=2)
    await fired_every_five_seconds(system, "archive", datetime.combine(day, time(), UTC))
    async with three_clicks(page, f"/manifests/archive?month={day:%Y-%m}"):
        cell = page.get_by_role("link", name=f"{day:%d %B}: ")
        await expect(cell).to_contain_text("skipped")
        await cell.click()

        # The one time without a success is listed at once, with its reason.
        await expect(page.get_by_role("heading", name="Without a success")).to_be_visible()
        line = page.locator("#day .fires li")
        await expect(line).to_have_count(1)
        await expect(line).to_contain_text("14:32:10")
        await expect(line.locator(".why")).to_contain_text("was still under way")
        hours = page.locator(".heat tbody tr")
        await expect(hours).to_have_count(24)
        height = await page.evaluate("() => document.querySelector('#day').offsetHeight")
        assert height < 2000
        await look_closely(page, "dense-day")

        await page.get_by_role("link", name="14:30 to 14:35: 59 completed, 1 skipped").click()
        await expect(page.get_by_role("heading", name="14:30 to 14:35")).to_be_visible()
        await expect(line).to_have_count(60)
    height = await page.evaluate("() => document.querySelector('#day').offsetHeight")
    assert height < 2000
    await look_closely(page, "dense-five-minutes")

    # Without a mouse: an hour, and then its cells.
    await page.get_by_role("link", name="14:00", exact=True).focus()
    await page.keyboard.press("Enter")
    await expect(line).to_have_count(1)
    await page.get_by_role("link", name="14:00", exact=True).focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="14:00 to 14:05")).to_be_visible()
    await page.goto(f"/manifests/archive?day={day}&minute=99999")
    await expect(page.get_by_role("heading", name="Without a success")).to_be_visible()


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


async def fired_every_five_seconds(system: System, manifest: str, since: datetime) -> None:
    """As if it had fired all day, and was skipped once, at 14:32:10."""
    await system.world.value(
        "WITH time AS (SELECT at, at = $2::timestamptz + interval '14:32:10' AS skipped"
        "   FROM generate_series($2::timestamptz, $2 + interval '86395 s', interval '5 s') AS at)"
        " INSERT INTO scheduler.occurrence (manifest_id, cause, first_due_at, last_due_at, decision,"
        "   reason, policies, decided_at, work_id, outcome, settled_at)"
        " SELECT manifest.id, 'due:' || to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SSZ'),"
        "   at, at, CASE WHEN skipped THEN 'skipped' ELSE 'queued' END,"
        "   CASE WHEN skipped THEN 'still_outstanding' END,"
        """   '{"misfire": "fire_once", "overlap": "skip", "group": "reports"}', at,"""
        "   CASE WHEN NOT skipped THEN gen_random_uuid() END,"
        "   CASE WHEN NOT skipped THEN 'completed' END, CASE WHEN NOT skipped THEN at END"
        " FROM time, scheduler.manifest WHERE external_id = $1",
        manifest,
        since,
    )
