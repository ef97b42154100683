"""The pages of work, runs, workers and what happens, as people use them."""

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from support.browsers import System, look_closely, open_page, run_system
from support.servers import TestPostgres
from support.troubled_app import TroubledApp

pytestmark = pytest.mark.thorough


@pytest_asyncio.fixture(scope="module")
async def system(
    chromium: Browser, postgres: TestPostgres, tmp_path_factory
) -> AsyncIterator[System]:
    """A system whose jobs do what the test says."""
    app: Any = TroubledApp()
    async with run_system(postgres, tmp_path_factory.mktemp("system"), app) as made:
        yield made


async def ask(system: System, method: str, *arguments: Any) -> Any:
    """Call a method of a client."""
    async with system.world.client("ada") as client:
        return await getattr(client, method)(*arguments)


async def run_of(system: System, work: Any) -> Any:
    """The run of a piece of work, once there is one."""
    return await system.world.until(
        "SELECT run_id FROM dispatcher.run WHERE work_id = $1 ORDER BY created_at LIMIT 1",
        work,
    )


WORK_PAGE = re.compile(r"/work/[0-9a-f-]{36}$")
EMPTY = [
    ("/runs", "No runs yet"),
    ("/work", "No work waiting or running"),
    ("/dead-letters", "No open dead letters"),
    ("/audit", "No changes yet"),
]


async def test_empty_pages_teach(page: Page):
    for path, words in EMPTY:
        await page.goto(path)
        await expect(page.get_by_text(words)).to_be_visible()
        await look_closely(page, f"empty{path.replace('/', '-')}")


async def test_a_run_tells_its_progress_and_its_log_as_they_come(page: Page, system: System):
    system.shown.hold()
    triggered = await ask(system, "trigger", "archive")
    run = await run_of(system, triggered.work)
    await page.goto(f"/runs/{run}")
    await expect(page.get_by_text("half way <img")).to_be_visible()
    system.shown.say("first line <img src=x onerror=alert(3)>")
    await expect(page.get_by_role("log")).to_contain_text("first line <img")
    system.shown.say("second line")
    await expect(page.get_by_role("log")).to_contain_text("second line")
    await expect(page.locator(".waterfall tbody tr.open th")).to_have_text("Ended")
    await look_closely(page, "run-live")
    system.shown.release()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("completed")
    await expect(page.get_by_role("heading", name="Output")).to_be_visible()
    await expect(page.locator(".waterfall tbody th")).to_have_text(
        ["Decided", "Queued", "Admitted", "Claimed", "Started", "Ended"]
    )
    await look_closely(page, "run-completed")


async def test_the_log_follows_its_end_until_somebody_scrolls_up(page: Page, system: System):
    system.shown.hold()
    triggered = await ask(system, "trigger", "archive")
    run = await run_of(system, triggered.work)
    await page.goto(f"/runs/{run}")
    for number in range(40):
        system.shown.say(f"line {number}")
    log, follow = page.get_by_role("log"), page.get_by_label("Follow")
    await expect(log).to_contain_text("line 39")
    hidden = "(log) => log.scrollHeight - log.scrollTop - log.clientHeight"
    assert await log.evaluate(hidden) < 2
    # A line that is there stays the same element, so that a selection in it survives.
    await log.locator(".line").first.evaluate("(line) => { line.dataset.kept = 'yes'; }")
    await log.evaluate("(log) => { log.scrollTop = 0; }")
    await expect(follow).not_to_be_checked()
    system.shown.say("one more")
    await expect(log).to_contain_text("one more")
    assert await log.evaluate("(log) => log.scrollTop") == 0
    await expect(log.locator("[data-kept]")).to_have_count(1)
    await follow.check()
    assert await log.evaluate(hidden) < 2
    system.shown.release()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("completed")


async def test_runs_are_found_and_their_attempts_stand_side_by_side(page: Page, system: System):
    system.shown.broken = True
    work = (await ask(system, "enqueue", "ship", {"item": "needle", "pieces": 7})).work
    await system.world.until(
        "SELECT true FROM dispatcher.work_queue WHERE id = $1 AND state = 'settled'", work
    )
    await page.goto("/runs")
    await page.get_by_label("Text").fill("needle")
    await page.get_by_role("button", name="Filter").click()
    await expect(page).to_have_url(
        "/runs?state=&text=needle&manifest=&text_in=&job=&group=&worker=&since=&before="
        "&zone=UTC&ended_since=&ended_before="
    )
    await expect(page.locator("#list tbody tr")).to_have_count(2)
    await page.get_by_label("State").select_option("failed")
    await expect(page.locator("#list tbody tr")).to_have_count(2)
    await look_closely(page, "runs")
    await page.locator("#list tbody tr a").first.click()
    await expect(page.locator(".attempt")).to_have_count(2)
    await expect(page.locator(".trouble")).to_contain_text(
        "no room for <img src=x onerror=alert(1)>"
    )
    await expect(page.locator("pre").filter(has_text="troubled_app.py")).to_be_visible()
    await expect(page.locator("#input")).to_contain_text('"pieces": 7')
    await look_closely(page, "run-failed")
    await expect(page.locator("#follows")).to_contain_text("It became a dead letter")
    await page.locator(".attempt").first.click()
    await expect(page.locator("#follows")).to_contain_text("Attempt 2 followed")
    await page.goto("/work?state=settled")
    await page.get_by_label("Text").fill("needle")
    await page.get_by_role("button", name="Filter").click()
    await expect(page.locator("#list tbody tr")).to_have_count(1)


async def test_a_search_without_an_index_says_how_far_it_looked(page: Page):
    await page.goto("/runs?text=nothing-has-this")
    await expect(page.get_by_text("No matching runs")).to_be_visible()
    await page.goto("/runs?manifest=nobody")
    await expect(page.get_by_text("There is no manifest nobody")).to_be_visible()


async def test_a_run_is_run_again_and_cancelled(page: Page, system: System):
    system.shown.hold()
    triggered = await ask(system, "trigger", "archive")
    run = await run_of(system, triggered.work)
    await page.goto(f"/runs/{run}")
    await page.get_by_role("button", name="Cancel").first.click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_be_visible()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("cancelled")
    await page.get_by_role("button", name="Run again").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_be_visible()
    await expect(page).to_have_url(WORK_PAGE)
    system.shown.release()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("completed")


async def test_waiting_work_says_for_what_and_is_cancelled_in_bulk(page: Page, system: System):
    system.shown.hold()
    first = await ask(system, "trigger", "archive")
    holder = await run_of(system, first.work)
    second = await ask(system, "trigger", "archive-2")
    await system.world.until(
        "SELECT reason = 'group_cap' FROM dispatcher.waiting WHERE id = $1", second.work
    )
    await page.goto("/work")
    row = page.locator("tr").filter(has_text="archive-2")
    await expect(row).to_contain_text("the group limit")
    await look_closely(page, "work-queue")
    await row.get_by_role("link", name="the group limit").click()
    await expect(page.locator(".gates .closed")).to_contain_text("1 of 1 active in group 'slow'")
    await expect(page.get_by_role("link", name=str(holder)[:8])).to_be_visible()
    await look_closely(page, "work")
    await page.goto("/work?group=slow")
    await page.get_by_label("Select all").check()
    await expect(page.locator("[data-count]")).to_have_text("2")
    await page.get_by_label("Reason").fill("not today")
    await page.get_by_role("button", name="Cancel", exact=True).first.click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_contain_text("1 cancelled before start")
    system.shown.release()
    await expect(page.get_by_text("No matching work")).to_be_visible()


async def test_workers_are_heard_as_they_live(page: Page, system: System):
    await page.goto("/workers")
    row = page.locator("#list tbody tr")
    await expect(row).to_have_count(1)
    await expect(row).to_contain_text("alive")
    await expect(row).to_contain_text("python")
    await look_closely(page, "workers")
    beat = await row.locator("time").first.get_attribute("datetime")
    await expect(row.locator("time").first).not_to_have_attribute("datetime", beat or "")


async def test_a_worker_is_asked_to_drain_and_ends(page: Page, system: System):
    other: Any = TroubledApp()
    worker = await system.world.worker(other.app, worker_name="other")
    await page.goto("/workers")
    row = page.locator("#list tbody tr").filter(has_text="other")
    await expect(row).to_contain_text("alive")
    await page.get_by_label("Select other").check()
    await page.get_by_role("button", name="Drain").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_contain_text("other takes no more orders")
    await expect(row).to_have_count(0)
    assert worker.draining
    await page.goto("/audit?action=worker.*")
    await expect(page.locator("#list tbody tr").first).to_contain_text("worker.drain_asked")


async def test_times_in_filters_are_the_viewers_and_the_address_means_the_same_to_all(
    chromium: Browser, system: System
):
    async with open_page(chromium, system, timezone_id="Asia/Tokyo") as page:
        await page.goto("/")  # the first page tells the zone, those that follow know it
        await page.goto("/runs")
        await page.locator("summary", has_text="More filters").click()
        await expect(page.get_by_label("Since Asia/Tokyo", exact=True)).to_be_visible()
        await page.get_by_label("Since Asia/Tokyo", exact=True).fill("2027-03-10T09:30")
        await page.get_by_role("button", name="Filter").click()
        await expect(page).to_have_url(re.compile("since=2027-03-10T09%3A30.*zone=Asia%2FTokyo"))
        await expect(page.get_by_text("No matching runs")).to_be_visible()
        address = page.url
    async with open_page(chromium, system, timezone_id="America/New_York") as page:
        await page.goto("/")
        since = page.get_by_label("Since America/New_York", exact=True)
        for path in (
            address,
            "/runs?since=2027-03-10T00:30:00Z&zone=Asia/Tokyo",
            "/runs?since=2027-03-10T00:30",  # without a zone it is UTC, as ever
        ):
            await page.goto(path)
            await expect(since).to_have_value("2027-03-09T19:30")
        answer = await page.goto("/runs?zone=Nowhere/At-all&since=2027-03-10T00:30")
        assert answer is not None
        assert answer.status == 422


async def test_events_come_by_themselves_and_wait_while_paused(page: Page, system: System):
    system.shown.broken = False
    await page.goto("/events?type=run.completed")
    await expect(page.locator("#events[data-listening]")).to_be_attached()
    before = await page.locator("#events tr").count()
    await ask(system, "enqueue", "ship", {"item": "lamp"})
    await expect(page.locator("#events tr")).to_have_count(before + 1)
    await page.get_by_role("button", name="Pause").click()
    await ask(system, "enqueue", "ship", {"item": "chair"})
    await expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    await expect(page.locator("#events tr")).to_have_count(before + 1)
    await page.get_by_role("button", name="Resume (1 new)").click()
    await expect(page.locator("#events tr")).to_have_count(before + 2)
    await page.goto("/events")
    await look_closely(page, "events")


async def test_the_audit_names_who_did_what(page: Page, system: System):
    await ask(system, "disable", "deliver")
    await page.goto("/audit?action=manifest.*")
    row = page.locator("#list tbody tr").filter(has_text="deliver").first
    await expect(row).to_contain_text("ada")
    await expect(row).to_contain_text("enabled true → false")
    await ask(system, "enable", "deliver")
    await expect(page.locator("#list tbody tr").first).to_contain_text("enabled false → true")
    await page.goto("/audit")
    await look_closely(page, "audit")


async def test_the_system_shows_its_leader_and_its_streams(page: Page, system: System):
    await system.world.make_due("deliver")
    await system.world.until("SELECT true FROM scheduler.leader WHERE name = 'tick'")
    await page.goto("/system")
    for words in (
        "became the leader",
        "HEADWAY_WORK",
        "projector",
        "worker-ship",
        "headway-dispatcher",
    ):
        await expect(page.get_by_text(words).first).to_be_visible()
    await look_closely(page, "system")


async def test_settings_of_every_service_say_who_said_them(page: Page):
    await page.goto("/settings")
    row = page.locator("tr").filter(has_text="HEADWAY_SESSION_HOURS")
    await expect(row).to_contain_text("default")
    for service, setting in (
        ("Scheduler", "HEADWAY_TICK"),
        ("Dispatcher", "HEADWAY_GATE_BATCH"),
        ("Console", "HEADWAY_SESSION_KEY"),
    ):
        region = page.get_by_role("region", name=service)
        await expect(region.locator("tr").filter(has_text=setting).first).to_be_visible()
    await page.get_by_label("Show").select_option("changed")
    await expect(row).to_have_count(0)
    await look_closely(page, "settings")


async def test_who_may_only_look_is_offered_no_change(chromium: Browser, system: System):
    async with open_page(chromium, system, role="viewer") as page:
        for path in ("/runs", "/work", "/dead-letters/list"):
            await page.goto(path)
            await expect(page.locator("form[method=post]:not(.who, .zones)")).to_have_count(0)
