"""One-shots that have fired: requests that enable them again, and requests that do not."""

import pytest
from headway import App, every, once, skip_missed
from headway.define.packing import pack
from headway_contract.definitions import ApplyRequest
from headway_contract.manifests import PauseRequest, ResumeRequest
from headway_errors import Rejected
from headway_scheduler.declare.plan import plan
from headway_scheduler.operate import pause
from support.tiers import first_in_each_tier
from support.timeline import minutely

pytestmark = pytest.mark.thorough

AT = "2027-03-01 12:10"
LATER = "2027-03-01 14:00"


def shot(at: str = AT, **options) -> App:
    return minutely(once(at), **options)


async def switch(timeline, *, enabled: bool, **more) -> str:
    return await timeline.change("a", enabled=enabled, actor="me", **more)


async def state_of(timeline) -> tuple:
    row = await timeline.manifest("a")
    return row["enabled"], row["disabled_by"], row["next_due_at"]


async def fire(timeline) -> None:
    assert (await timeline.tick(minutes=11)).fired == 1


async def count_changes(timeline) -> int:
    rows = await timeline.rows(
        "SELECT id FROM scheduler.history WHERE type = 'headway.manifest.changed.v1'"
    )
    return len(rows)


async def settled(timeline):
    await fire(timeline)
    await timeline.settle("a")


async def skipped(timeline):
    assert (await timeline.tick(minutes=90)).fired == 0


async def disabled_when_its_time_came(timeline):
    timeline.at(minutes=5)
    await switch(timeline, enabled=False)
    timeline.at(minutes=90)


async def disabled_while_it_ran(timeline):
    await fire(timeline)
    await switch(timeline, enabled=False)
    await timeline.settle("a")


async def disabled_afterwards(timeline):
    await settled(timeline)
    await switch(timeline, enabled=False)


async def resumed_afterwards(timeline):
    await settled(timeline)
    await timeline.do(pause.pause, PauseRequest(manifests=["a"]))
    timeline.at(minutes=12)
    await timeline.do(pause.resume, ResumeRequest(manifests=["a"]))


@pytest.mark.parametrize(
    "spend",
    first_in_each_tier(
        [
            settled,
            skipped,
            disabled_when_its_time_came,
            disabled_while_it_ran,
            disabled_afterwards,
            resumed_afterwards,
        ],
        first=2,
    ),
)
async def test_a_fired_one_shot_is_not_enabled_and_nothing_is_changed(timeline, spend):
    misfire = skip_missed() if spend is skipped else "fire_once"
    await timeline.declare(shot(misfire=misfire))
    await spend(timeline)
    before, ledger, changes = (
        dict(await timeline.manifest("a")),
        await timeline.ledger("a"),
        await count_changes(timeline),
    )
    with pytest.raises(Rejected, match=r"one-shot.*another time.*'headway trigger a'"):
        await switch(timeline, enabled=True, attempts=7)
    assert dict(await timeline.manifest("a")) == before
    assert await timeline.ledger("a") == ledger
    assert await count_changes(timeline) == changes
    assert (await timeline.trigger("a")).result == "queued"


async def test_with_a_dead_letter_the_remedy_is_to_retry_that(timeline):
    await timeline.declare(shot())
    await fire(timeline)
    work, letter = await timeline.dead_letter("a")
    with pytest.raises(Rejected, match=f"retry its dead letter {letter}"):
        await switch(timeline, enabled=True)
    await timeline.resolve("a", work, letter, retried=True)
    await timeline.settle("a")
    assert await state_of(timeline) == (False, "once", None)


async def test_enabled_before_its_time_it_fires(timeline):
    await timeline.declare(shot())
    await switch(timeline, enabled=False)
    timeline.at(minutes=9)
    assert await switch(timeline, enabled=True) == "a: enabled"
    await settled(timeline)
    assert await state_of(timeline) == (False, "once", None)


async def test_a_one_shot_with_work_under_way_is_enabled_until_the_work_ends(timeline):
    """Otherwise work that waits for its manifest to be enabled would wait for ever."""
    await timeline.declare(shot())
    await fire(timeline)
    await switch(timeline, enabled=False)
    text = await switch(timeline, enabled=True)
    assert text == "a: enabled, until the work under way has ended: its one time has come"
    await timeline.settle("a")
    assert await state_of(timeline) == (False, "once", None)


async def test_one_that_is_overdue_in_a_pause_is_enabled_as_it_is(timeline):
    await timeline.declare(shot())
    await timeline.do(pause.pause, PauseRequest(group="ops"))
    timeline.at(minutes=30)
    await switch(timeline, enabled=True)
    await timeline.do(pause.resume, ResumeRequest(group="ops"))
    assert len(await timeline.under_way("a")) == 1


async def test_resuming_a_fired_one_shot_promises_nothing(timeline):
    await timeline.declare(shot())
    await settled(timeline)
    await timeline.do(pause.pause, PauseRequest(group="ops"))
    answer = await timeline.do(pause.resume, ResumeRequest(group="ops"))
    [effect] = answer.manifests
    assert (answer.fires, effect.text) == (0, "it stays held: manifest_disabled")
    assert await state_of(timeline) == (False, "once", None)


@pytest.mark.parametrize("spend", [settled, resumed_afterwards])
async def test_given_another_time_it_is_armed_again(timeline, spend):
    await timeline.declare(shot())
    await spend(timeline)
    await timeline.declare(shot(LATER))
    assert (await timeline.manifest("a"))["enabled"]
    assert (await timeline.tick(minutes=120)).fired == 1


async def test_one_that_an_operator_disabled_is_enabled_once_it_has_another_time(timeline):
    await timeline.declare(shot())
    await disabled_afterwards(timeline)
    await timeline.declare(shot(LATER))
    assert not (await timeline.manifest("a"))["enabled"], "the operator decides about enabled"
    await switch(timeline, enabled=True)
    assert (await timeline.tick(minutes=120)).fired == 1


async def disabled_by_code(timeline) -> None:
    await timeline.declare(shot(enabled=False))
    timeline.at(minutes=90)


async def given_back_by_operator(timeline) -> None:
    await timeline.declare(shot())
    await disabled_when_its_time_came(timeline)
    await timeline.change("a", give_back=["enabled"])


async def declared_again(timeline) -> None:
    await timeline.declare(shot())
    await timeline.declare(App("test"), prune="disable")
    timeline.at(minutes=90)


@pytest.mark.parametrize("enable", [disabled_by_code, given_back_by_operator, declared_again])
async def test_declared_enabled_after_its_time_it_disables_itself_and_says_so(timeline, enable):
    await enable(timeline)
    warning = (
        "manifest 'a' is a one-shot whose time has passed while it was disabled: it does not fire, "
        "unless it is given a later time"
    )
    assert await planned(timeline, shot()) == [warning]
    assert (await timeline.declare(shot())).warnings == [warning]
    assert await state_of(timeline) == (False, "once", None)
    assert await planned(timeline, shot(priority=3)) == [], "no warning twice"
    assert (await timeline.declare(shot(priority=3))).warnings == []


async def test_a_plan_warns_of_none_that_will_fire_or_stays_disabled(timeline):
    await timeline.declare(shot(enabled=False))
    assert await planned(timeline, shot()) == []
    await switch(timeline, enabled=False)
    timeline.at(minutes=90)
    assert await planned(timeline, shot()) == []
    assert await planned(timeline, shot(LATER)) == []


async def planned(timeline, app: App) -> list[str]:
    """Return the warnings of a plan, without the warnings about an operator's fields."""
    request = ApplyRequest(definitions=pack(app.definitions()))
    answer = await plan(timeline.database, request, policy="keep")
    return [warning for warning in answer.warnings if "as an operator set it" not in warning]


async def test_a_one_shot_disables_itself_when_code_enables_its_group_after_its_time(timeline):
    for minutes, enabled in ((0, False), (90, True)):
        timeline.at(minutes=minutes)
        app = shot()
        app.group("ops", enabled=enabled)
        await timeline.declare(app)
    assert await state_of(timeline) == (False, "once", None)
    assert await timeline.ledger("a") == [("10", "skipped", "group_disabled")]


async def test_a_group_enables_the_others(timeline):
    app = shot()
    app.schedule("b", job="job", when=every(hours=1))
    await timeline.declare(app)
    await settled(timeline)
    for enabled in (False, True):
        await timeline.change_group("ops", enabled=enabled)
    assert await state_of(timeline) == (False, "once", None)
    assert (await timeline.manifest("b"))["wake_at"] is not None


async def test_clients_get_the_refusal_and_the_other_manifests_are_enabled(world, client):
    app = shot("2020-01-01 09:00")
    app.schedule("b", job="job", when=every(hours=1))
    await world.scheduler(app, tick="off")
    with pytest.raises(Rejected, match=r"'a' is a one-shot, once at .*its time has passed"):
        await client.enable("a")
    await client.disable("b")
    spent, other = await client.change_many("a", "b", action="enable", key="k")
    again = await client.change_many("a", "b", action="enable", key="k")
    assert (spent.done, other.done) == (False, True)
    assert "give it another time" in spent.text
    assert again == [spent, other]


async def test_the_console_shows_the_refusal(world, console):
    await world.scheduler(shot("2020-01-01 09:00"), tick="off")
    async with console.signed_in("operator") as web:
        reply = await web.post("/manifests/bulk", data={"id": "a", "action": "enable"})
        shown = await web.get(reply.headers["location"])
        assert "its time has passed: give it another time" in shown.text
    assert await world.value("SELECT disabled_by FROM scheduler.manifest") == "once"


async def test_a_one_shot_disables_itself_and_is_re_armed_only_by_another_time(timeline):
    await timeline.declare(shot())
    assert (await timeline.tick(minutes=90)).fired == 1, "it fires even if it was missed"
    assert (await timeline.manifest("a"))["enabled"], "not before its work has ended"
    await timeline.settle("a")
    row = await timeline.manifest("a")
    assert (row["enabled"], row["disabled_by"]) == (False, "once")
    await timeline.declare(shot(priority=3))
    assert (await timeline.tick(minutes=95)).fired == 0
    await timeline.declare(shot(LATER))
    assert (await timeline.tick(minutes=120)).fired == 1


async def test_a_one_shot_whose_time_was_skipped_disables_itself_too(timeline):
    await timeline.declare(shot(misfire=skip_missed()))
    assert (await timeline.tick(minutes=90)).fired == 0
    row = await timeline.manifest("a")
    assert (row["enabled"], row["disabled_by"], row["next_due_at"]) == (False, "once", None)
    assert await timeline.ledger("a") == [("10", "skipped", "missed")]


async def test_a_one_shot_of_a_group_that_was_disabled_has_had_its_shot(timeline):
    await timeline.declare(shot())
    for minutes, enabled in ((5, False), (90, True)):
        timeline.at(minutes=minutes)
        await timeline.change_group(enabled=enabled)
    row = await timeline.manifest("a")
    assert (row["enabled"], row["disabled_by"]) == (False, "once")
    assert await timeline.ledger("a") == [("10", "skipped", "group_disabled")]


async def test_a_one_shot_that_was_blocked_has_had_its_shot(timeline):
    await timeline.declare(shot())
    await timeline.trigger("a")
    letter = await timeline.dead_letter("a")
    assert (await timeline.tick(minutes=90)).fired == 0
    assert (await timeline.manifest("a"))["enabled"]
    await timeline.resolve("a", *letter, retried=False)
    row = await timeline.manifest("a")
    assert (row["enabled"], row["disabled_by"], row["next_due_at"]) == (False, "once", None)
