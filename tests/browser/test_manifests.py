"""Manifests as people use them: found, understood, run, switched and changed."""

import re

import pytest
from playwright.async_api import Browser, Page, expect
from support.browsers import System, look_closely, open_page

pytestmark = pytest.mark.thorough


async def test_the_list_is_searched_and_every_filter_is_in_the_address(page: Page):
    await page.goto("/manifests")
    await page.keyboard.press("/")
    await page.keyboard.type("-report")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile("text=-report"))
    names = page.get_by_role("region", name="Manifests").locator("tbody a[href^='/manifests/']")
    await expect(names).to_have_text(["mail-report", "nightly-report", "nightly-report"])
    await page.get_by_label("Label").select_option("team=billing")
    await expect(page).to_have_url(re.compile("label=team%3Dbilling"))
    await expect(names).to_have_text(["nightly-report"])
    await page.get_by_role("link", name="Clear").click()
    await expect(names).to_have_count(6)
    await look_closely(page, "schedules")
    await page.goto("/manifests?text=nothing-like-this")
    await expect(page.get_by_text("No matching manifests")).to_be_visible()


async def test_checked_ones_are_disabled_and_enabled_together(system: System, page: Page):
    await page.goto("/manifests?group=reports")
    await page.get_by_label("Select all").check()
    await expect(page.locator("[data-count]")).to_have_text("3")
    await page.get_by_label("Select import").uncheck()
    await page.get_by_role("button", name="Disable").click()
    await page.locator("#confirm-yes").click()
    await expect(page.locator(".flash.good")).to_contain_text("2 done")
    assert await enabled(system) == {"import": True, "mail-report": False, "nightly-report": False}
    await page.get_by_label("Select all").check()
    await page.get_by_role("button", name="Enable").click()
    await expect(page.locator(".flash.good")).to_contain_text("3 done")
    assert set((await enabled(system)).values()) == {True}


async def test_run_now_asks_for_what_the_job_takes(system: System, page: Page):
    await page.goto("/manifests/greeting")
    await expect(page.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()
    editor, check = page.get_by_label("Input (JSON)"), page.locator("#input-check")
    await editor.fill('{"name": "Grace", "times": "many"}')
    await expect(check).to_contain_text("times")
    await page.get_by_role("button", name="Run with this input").click()
    await expect(check).to_contain_text("times")
    await expect(editor).to_have_value('{"name": "Grace", "times": "many"}')
    await editor.fill('{"name": "Grace", "times": 2, "loud": true}')
    await page.get_by_role("button", name="Run with this input").click()
    await expect(page.locator(".flash.good")).to_contain_text("own input is unchanged")
    await expect(page.locator("#status")).to_contain_text("completed")
    [greeted] = system.shown.greeted
    assert (greeted.name, greeted.times, greeted.loud) == ("Grace", 2, True)
    await expect(page.locator("#explanation")).to_contain_text("a trigger by")
    recent = page.get_by_role("region", name="Recent runs").locator("tbody tr")
    await expect(recent).to_have_count(1)
    await page.get_by_label("Find runs by text").fill("grace")
    await page.get_by_role("button", name="Find runs").click()
    await expect(page.locator("#list tbody tr")).to_have_count(1)
    await page.locator("#list tbody tr a").first.click()
    await page.get_by_role("link", name="Edit input and run").click()
    await expect(editor).to_have_value(re.compile('"Grace"'))
    for count in (2, 3):
        await page.get_by_role("button", name="Run now").click()
        await expect(recent).to_have_count(count)
        await expect(page.locator("#status")).not_to_contain_text("under way")
    await expect(page.locator(".durations rect.good")).to_have_count(3)
    await look_closely(page, "schedule")


async def test_it_is_run_and_switched_by_one_button(system: System, page: Page):
    await page.goto("/manifests/nightly-report")
    await page.get_by_role("button", name="Run now").click()
    await expect(page.locator(".flash.good")).to_be_visible()
    await expect(page.locator("#status")).to_contain_text("completed")
    await page.get_by_role("button", name="Disable").click()
    await expect(page.locator(".flash.good")).to_contain_text("disabled")
    await expect(page.locator("#status .figures")).to_contain_text("held")
    await page.get_by_role("button", name="Enable").click()
    await expect(page.locator("#status .tag").first).to_have_text("enabled")
    today = page.locator(".calendar .today")
    await expect(today).to_contain_text("completed")


async def test_retries_are_changed_and_given_back(system: System, page: Page):
    await page.goto("/manifests/archive")
    await page.get_by_label("Attempts", exact=True).fill("7")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash.good")).to_be_visible()
    attempts = "SELECT terms -> 'retry' ->> 'attempts' FROM scheduler.manifest WHERE external_id = 'archive'"
    assert await system.world.value(attempts) == "7"
    overrides = page.locator("section").filter(has=page.get_by_role("heading", name="Overrides"))
    await expect(overrides).to_contain_text("attempts: 7")
    await overrides.get_by_role("button", name="Reset to code").click()
    await expect(overrides).to_contain_text("No overrides")


async def test_a_pause_tells_what_will_catch_up_before_it_ends(system: System, page: Page):
    await page.goto("/manifests/import")
    await page.locator("summary", has_text="Pause").click()
    await page.get_by_label("Hours").fill("2")
    await page.get_by_label("Reason").fill("the disk is <b>full</b>")
    await page.locator("details.drop form button").click()
    await expect(page.locator(".flash.good")).to_be_visible()
    notice = page.locator(".flash.notice")
    await expect(notice).to_contain_text("the disk is <b>full</b>")
    await expect(notice.locator(".why")).not_to_be_empty()
    await page.goto("/manifests?state=paused")
    await expect(page.get_by_role("row").filter(has_text="import")).to_contain_text("paused")
    await page.get_by_label("Select import").check()
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator(".flash.good")).to_contain_text("1 manifest resumed")
    await expect(page.get_by_text("No matching manifests")).to_be_visible()


async def test_what_the_scheduler_refuses_is_told(system: System, page: Page):
    await page.goto("/manifests/archive")
    await page.get_by_label("Jitter in seconds").fill("100000")
    await page.get_by_role("button", name="Save").click()
    await expect(page.locator(".flash.bad")).to_contain_text("jitter")


async def test_one_made_at_run_time_can_be_deleted(system: System, page: Page):
    await make_at_run_time(system)
    await page.goto("/manifests/passing")
    await page.get_by_role("button", name="Delete").click()
    await page.locator("#confirm-yes").click()
    await expect(page).to_have_url(re.compile("/manifests$"))
    await expect(page.locator(".flash.good")).to_contain_text("passing")


async def test_dependents_are_drawn_and_lead_to_each_other(page: Page):
    await page.goto("/manifests/nightly-report")
    graph = page.get_by_role("region", name="Graph of dependents")
    await expect(graph.locator("rect")).to_have_count(2)
    await expect(graph.locator("path.edge")).to_have_count(1)
    await graph.get_by_role("link", name="mail-report").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("mail-report")


async def test_a_viewer_looks_and_changes_nothing(chromium: Browser, system: System):
    async with open_page(chromium, system, role="viewer") as page:
        await page.goto("/manifests/archive")
        await expect(page.get_by_role("button", name="Run now")).to_have_count(0)
        await expect(page.get_by_role("button", name="Save")).to_have_count(0)
        answer = await page.request.post(
            "/manifests/bulk", form={"id": "archive", "action": "disable"}
        )
        assert answer.status == 403


async def enabled(system: System) -> dict[str, bool]:
    rows = await system.world.rows(
        "SELECT external_id, enabled FROM scheduler.manifest WHERE group_name = 'reports'"
    )
    return {row["external_id"]: row["enabled"] for row in rows}


async def make_at_run_time(system: System) -> None:
    from headway import Client, daily

    async with Client(system.url, token=system.console.tokens["admin"]) as client:
        await client.schedule("passing", job="report", when=daily("05:00"))
