"""Explanations name the policy at the time of the decision, and the current policy."""

from datetime import timedelta

import pytest
from headway import App, allow, catch_up, every, skip_missed
from headway_contract.manifests import PauseRequest, ResumeRequest
from headway_contract.work_queue import CancelOutstandingRequest
from headway_scheduler.declare.startup import apply
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate import pause
from headway_scheduler.operate.cancel import cancel
from support.timeline import START, Timeline

pytestmark = pytest.mark.thorough

FIRE_ONCE = "one later fire made up for all that was missed (misfire policy 'fire_once')"
POLICIES = {
    "fire_once": ("fire_once", FIRE_ONCE),
    "skip": ("skip", "its misfire policy was 'skip'"),
    "catch_up": (catch_up(2), "its misfire policy, 'catch_up', made up for the latest ones only"),
}
CHANGES = [(then, now) for then in POLICIES for now in POLICIES if then != now]


def app_with(*, group: str = "ops", step: int = 1, **options) -> App:
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("a", job="job", when=every(minutes=step), group=group, **options)
    return app


async def explain_at(timeline: Timeline, minute: float | None) -> str:
    at = None if minute is None else START + timedelta(minutes=minute)
    async with timeline.database.acquire() as connection:
        row = await find_manifest(connection, "a")
        answer = await explain(connection, row, at=at, now=timeline.clock.at, kept_days=30)
    return answer.text


async def outage(timeline: Timeline, **options) -> None:
    """Stop ticking for five minutes."""
    await timeline.declare(app_with(**options))
    await timeline.tick(minutes=5.5)


async def pause_manifest(timeline: Timeline, **options) -> None:
    await timeline.declare(app_with(**options))
    await timeline.do(pause.pause, PauseRequest(manifests=["a"], reason="upgrade"))
    timeline.at(minutes=5.5)
    await timeline.do(pause.resume, ResumeRequest(manifests=["a"]))


@pytest.mark.parametrize(("then", "now"), CHANGES)
@pytest.mark.parametrize("miss", [outage, pause_manifest])
async def test_the_misfire_policy_of_that_time_is_named(timeline, miss, then, now):
    given, words = POLICIES[then]
    await miss(timeline, misfire=given)
    before = await explain_at(timeline, 2)
    assert words in before
    assert f"{now!r}" not in before
    timeline.at(minutes=5.8)
    await timeline.declare(app_with(misfire=POLICIES[now][0]))
    await timeline.declare(app_with(misfire=POLICIES[now][0], priority=3))
    after = await explain_at(timeline, 2)
    assert words in after
    assert after.endswith(f"Its misfire policy is {now!r} now.")


async def test_a_deployment_decides_past_times_by_the_old_definition(timeline):
    """Times before the deployment follow the old definition."""
    await timeline.declare(app_with(misfire="skip"))
    timeline.at(minutes=5.5)
    await timeline.declare(app_with(misfire="fire_once"))
    assert "its misfire policy was 'skip'" in await explain_at(timeline, 2)


@pytest.mark.parametrize(
    ("then", "now"), [("skip", "queue_one"), (allow(1), "skip"), ("skip", "cancel_running")]
)
async def test_the_overlap_policy_of_that_time_is_named(timeline, then, now):
    await timeline.declare(app_with(overlap=then))
    await timeline.tick(minutes=1)
    timeline.at(minutes=3.5)
    await timeline.settle("a")
    was = "skip" if then == "skip" else "allow"
    assert f"under way, and its overlap policy was {was!r}. Use " in await explain_at(timeline, 2)
    await timeline.declare(app_with(overlap=now))
    text = await explain_at(timeline, 2)
    assert f"its overlap policy was {was!r}." in text
    assert text.endswith(f"Its overlap policy is {now!r} now.")
    assert "Use overlap=" not in text


async def test_the_queue_one_policy_of_that_time_is_named(timeline):
    await timeline.declare(app_with(overlap="queue_one"))
    for minute in (1, 2):
        await timeline.tick(minutes=minute)
    timeline.at(minutes=4.5)
    await timeline.settle("a")
    await timeline.declare(app_with(overlap="skip"))
    text = await explain_at(timeline, 3)
    assert "(overlap policy 'queue_one')" in text, text
    assert text.endswith("Its overlap policy is 'skip' now.")


async def test_the_group_of_that_time_is_named(timeline):
    await timeline.declare(app_with(group="old"))
    await timeline.change_group("old", enabled=False, actor="ada")
    timeline.at(minutes=5.5)
    await timeline.declare(app_with(group="new"))
    text = await explain_at(timeline, 2)
    assert "its group 'old' was disabled (by ada at 2027-03-01 12:00:00+00:00)." in text
    assert text.endswith("It is in group 'new' now.")


async def test_the_current_state_names_the_policy_of_that_time(timeline):
    await outage(timeline, misfire=skip_missed(threshold=1))
    await timeline.declare(app_with(misfire="fire_once"))
    assert "its misfire policy was 'skip'" in await explain_at(timeline, None)


NOTHING = {
    "fire_once": "nothing made up for it (misfire policy 'fire_once')",
    "catch_up": "nothing made up for it (misfire policy 'catch_up')",
}


@pytest.mark.parametrize("policy", NOTHING)
async def test_a_timing_changed_in_a_pause_has_no_later_fire(timeline, policy):
    given, _ = POLICIES[policy]
    await timeline.declare(app_with(misfire=given))
    await timeline.do(pause.pause, PauseRequest(manifests=["a"], reason="upgrade"))
    timeline.at(minutes=5.5)
    await timeline.declare(app_with(misfire=given, step=30))
    await timeline.do(pause.resume, ResumeRequest(manifests=["a"]))
    assert await timeline.ledger("a") == [("1-5", "skipped", "paused: upgrade")]
    for minute in (2, None):
        assert f"paused then (upgrade), and {NOTHING[policy]}." in await explain_at(
            timeline, minute
        )


@pytest.mark.parametrize("policy", NOTHING)
async def test_a_timing_changed_without_a_tick_has_no_later_fire(timeline, policy):
    given, _ = POLICIES[policy]
    await timeline.declare(app_with(misfire=given))
    timeline.at(minutes=5.5)
    await apply(
        timeline.database,
        app_with(misfire=given, step=30).definitions(),
        policy="keep",
        may_fire=False,
    )
    assert NOTHING[policy] in await explain_at(timeline, 2)


async def test_a_cancelled_later_fire_is_not_named(timeline):
    """An operator cancelled the manifest while the later fire waited."""
    await timeline.declare(app_with(overlap="queue_one"))
    await timeline.tick(minutes=1)
    await timeline.tick(minutes=5.5)
    assert FIRE_ONCE in await explain_at(timeline, 3)
    await timeline.do(cancel, CancelOutstandingRequest(manifest="a", actor="me"))
    assert NOTHING["fire_once"] in await explain_at(timeline, 3)


async def test_a_fire_behind_many_triggers_is_found(timeline):
    await timeline.declare(app_with())
    for number in range(25):
        timeline.at(minutes=4, seconds=number)
        await timeline.rows(
            "INSERT INTO scheduler.occurrence (manifest_id, cause, first_due_at, last_due_at,"
            " decision, reason, decided_at, policies)"
            " SELECT id, $1, $2, $2, 'skipped', 'cancelled', $2, scheduler.policies(manifest)"
            " FROM scheduler.manifest",
            f"trigger:{number}",
            timeline.clock.at,
        )
    await timeline.tick(minutes=5.5)
    assert FIRE_ONCE in await explain_at(timeline, 2)
