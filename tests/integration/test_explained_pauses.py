"""Explanations of paused, disabled and missed times."""

from datetime import timedelta

import pytest
from headway import catch_up, exclude_times, once, spaced
from headway_contract.manifests import PauseRequest, ResumeRequest
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate import pause
from support.timeline import START, Timeline, minutely

pytestmark = pytest.mark.thorough


async def explain_at(timeline: Timeline, minute: float | None = None, *, of: str = "a") -> str:
    """Explain a minute, or the current state of the manifest."""
    at = None if minute is None else START + timedelta(minutes=minute)
    async with timeline.database.acquire() as connection:
        row = await find_manifest(connection, of)
        answer = await explain(connection, row, at=at, now=timeline.clock.at, kept_days=30)
    return answer.text


async def test_a_future_time_of_a_disabled_manifest_would_fire(timeline):
    await timeline.declare(minutely())
    assert (await explain_at(timeline, 40)).endswith("lies ahead and will fire.")
    await timeline.change(enabled=False, actor="me")
    assert "lies ahead and would fire. It is held: it is disabled" in await explain_at(timeline, 40)


@pytest.mark.parametrize(
    ("misfire", "made_good"),
    [
        (
            "fire_once",
            "one later fire made up for all that was missed (misfire policy 'fire_once')",
        ),
        ("skip", "its misfire policy was 'skip'"),
        (catch_up(2), "its misfire policy, 'catch_up', made up for the latest ones only"),
    ],
    ids=["fire_once", "skip", "catch_up"],
)
async def test_times_in_a_pause_are_decided_when_it_ends(timeline, misfire, made_good):
    await timeline.declare(minutely(misfire=misfire))
    await timeline.do(pause.pause, PauseRequest(manifests=["a"], reason="upgrade", actor="me"))
    timeline.at(minutes=5.5)
    assert "has not fired; it will be decided when the pause ends." in await explain_at(timeline, 5)
    await timeline.do(pause.resume, ResumeRequest(manifests=["a"], actor="me"))
    assert (await explain_at(timeline, 2)).endswith(
        f": it was paused then (upgrade), and {made_good}."
    )


async def test_an_excluded_time_in_an_outage_is_named(timeline):
    await timeline.declare(minutely(exclude=[exclude_times("12:05-12:30")]))
    await timeline.tick(minutes=45.5)
    assert (await explain_at(timeline, 3)).endswith("Was the scheduler down then?")
    assert (await explain_at(timeline, 7)).endswith(
        "12:07:00+00:00 would not have fired anyway: its timing leaves it out (between 12:05-12:30)."
    )


async def test_a_one_shot_that_was_declared_too_late_was_not_made_up_for(timeline):
    await timeline.declare(minutely(once("2027-03-01 11:00")))
    text = await explain_at(timeline, -60)
    assert "did not fire: it was past by more than the misfire threshold when it was" in text
    assert "made up for" not in text


@pytest.mark.parametrize("hold", ["disabled", "declared disabled"])
async def test_a_one_shot_that_was_disabled_at_its_time_needs_another_time(timeline, hold):
    await timeline.declare(minutely(once("2027-03-01 12:10"), enabled=hold == "disabled"))
    if hold == "disabled":
        await timeline.change(enabled=False, actor="me")
    assert "headway enable a" in await explain_at(timeline), "its time has not passed"
    timeline.at(minutes=30)
    remedy = "Its one time has passed: give it another time, or run it with 'headway trigger a'."
    for text in (await explain_at(timeline), await explain_at(timeline, 10)):
        assert remedy in text
        assert "headway enable" not in text


async def test_a_skipped_one_shot_names_the_reason_after_its_time(timeline):
    await timeline.declare(minutely(once("2027-03-01 12:10")))
    await timeline.change(enabled=False, actor="me")
    timeline.at(minutes=30)
    await timeline.change("a", give_back=["enabled"])
    await timeline.declare(minutely(once("2027-03-01 12:10")))
    assert (await timeline.manifest("a"))["disabled_by"] == "once"
    text = await explain_at(timeline, 10)
    assert "did not fire: it was disabled (by me at 2027-03-01 12:00:00+00:00)." in text
    assert text.endswith("give it another time, or run it with 'headway trigger a'.")


async def test_a_one_shot_that_is_overdue_in_a_pause_is_not_called_decided(timeline):
    await timeline.declare(minutely(once("2027-03-01 12:10")))
    await timeline.do(pause.pause, PauseRequest(manifests=["a"], actor="me"))
    timeline.at(minutes=30)
    text = await explain_at(timeline)
    assert text.endswith(
        "It is a one-shot whose one time, 2027-03-01 12:10:00 UTC, is not decided yet."
    )
    assert "It is paused since " in text
    await timeline.do(pause.resume, ResumeRequest(manifests=["a"], actor="me"))
    text = await explain_at(timeline)
    assert text.endswith("It is a one-shot and its time was decided: it will not fire again.")


async def test_a_one_shot_with_a_new_past_time_was_not_made_up_for(timeline):
    await timeline.declare(minutely(once("2027-03-01 12:10")))
    await timeline.tick(minutes=10)
    await timeline.settle("a")
    timeline.at(minutes=90)
    await timeline.declare(minutely(once("2027-03-01 13:00")))
    text = await explain_at(timeline, 60)
    assert "did not fire: it was past by more than the misfire threshold when it was" in text
    assert "made up for" not in text


async def test_a_one_shot_that_was_missed_in_an_outage_was_not_declared_too_late(timeline):
    await timeline.declare(minutely(once("2027-03-01 12:10"), misfire="skip"))
    await timeline.tick(minutes=90)
    assert "its misfire policy was 'skip'" in await explain_at(timeline, 10)


async def test_outstanding_work_skips_only_scheduled_times(timeline):
    app = minutely()
    app.manifest("a").then("child", job="job")
    app.schedule("b", job="job", when=spaced(minutes=10))
    await timeline.declare(app)
    await timeline.tick(minutes=1)
    assert "its times are skipped until that has ended" in await explain_at(timeline)
    text = await explain_at(timeline, of="b")
    assert text.startswith("b runs job 'job' in group 'ops': 10 minutes after its last work")
    assert "under way" in text
    assert "skipped" not in text
    await timeline.settle("a")
    text = await explain_at(timeline, of="child")
    assert "a success of its parent meanwhile is followed when that has ended" in text
    assert "skipped" not in text
