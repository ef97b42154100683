"""Requests of operators: triggers, changes and their answers."""

from types import UnionType

import pytest
from headway import App, every
from headway_contract.manifests import PauseRequest, TriggerRequest
from headway_contract.work import GroupChanged, WorkBroughtForward, WorkQueued
from headway_errors import Rejected
from headway_scheduler.operate import pause, triggers
from headway_scheduler.retention import Retention

pytestmark = pytest.mark.thorough


def app_with(kind: type | UnionType = int, **options) -> App:
    app = App("test")

    @app.job("job", group="ops")
    def job(ctx, number: kind): ...

    app.schedule("a", job=job, when=every(hours=1), **{"input": 1, **options})
    return app


async def test_run_now_does_not_move_the_schedule(timeline):
    await timeline.declare(app_with())
    due = (await timeline.manifest("a"))["next_due_at"]
    answer = await timeline.trigger(actor="me", input=7)
    assert answer.result == "queued"
    [queued] = await timeline.outbox(WorkQueued)
    assert (queued.work, queued.input, queued.explicit, queued.due_at) == (
        answer.work,
        7,
        True,
        None,
    )
    assert (await timeline.manifest("a"))["next_due_at"] == due
    audit = await timeline.rows(
        "SELECT source FROM scheduler.history WHERE type = 'headway.manifest.triggered.v1'"
    )
    assert [row["source"] for row in audit] == ["operator/me"]


async def test_the_same_key_triggers_once(timeline):
    await timeline.declare(app_with())

    async def trigger_again():
        answer = await timeline.trigger(key="order-7", input=7)
        assert (answer.result, answer.work) == ("known", first.work)

    first = await timeline.trigger(key="order-7", input=7)
    await trigger_again()
    assert len(await timeline.outbox(WorkQueued)) == 1
    await timeline.declare(app_with(kind=str, input="one"))
    await trigger_again()  # although a new trigger could not have this input
    await timeline.dead_letter("a")
    await trigger_again()  # although a new trigger would be refused


@pytest.mark.parametrize(
    ("first", "fields", "named"),
    [
        ({"input": 7}, {"input": 8}, "input was 7, now 8"),
        ({"input": 7}, {}, "input was 7, now the manifest's own"),
        ({}, {"delay_seconds": 5}, r"delay was 0\.0, now 5\.0"),
        ({"delay_seconds": 60.5}, {}, r"delay was 60\.5, now 0\.0"),
        ({}, {"priority": 3}, "priority was the manifest's own, now 3"),
    ],
)
async def test_the_same_key_for_something_else_is_refused(timeline, first, fields, named):
    await timeline.declare(app_with())
    await timeline.trigger(key="order-7", **first)
    timeline.at(minutes=1)
    assert (await timeline.trigger(key="order-7", **first)).result == "known"
    with pytest.raises(Rejected, match=named):
        await timeline.trigger(key="order-7", **fields)
    assert len(await timeline.outbox(WorkQueued)) == ("delay_seconds" not in first)


async def test_a_key_that_brought_work_forward_names_that_work_again(timeline):
    await timeline.declare(app_with())
    under_way = await timeline.trigger()
    first = await timeline.trigger(key="order-7", input=9)
    assert (first.result, first.work) == ("brought_forward", under_way.work)
    await timeline.settle("a")
    second = await timeline.trigger(key="order-7", input=9)
    assert (second.result, second.work) == ("known", under_way.work)
    assert second.not_used == first.not_used == ["input"]
    assert str(under_way.work) in second.text
    assert len(await timeline.outbox(WorkBroughtForward)) == 1
    assert len(await timeline.outbox(WorkQueued)) == 1


async def test_a_key_is_remembered_while_its_work_is_under_way_again(timeline):
    await timeline.declare(app_with())
    first = await timeline.trigger(key="order-7")
    work, letter = await timeline.dead_letter("a")
    timeline.at(days=31)
    await timeline.resolve("a", work, letter, retried=True)
    await Retention(timeline.database, days=30).run_once()
    second = await timeline.trigger(key="order-7")
    assert (second.result, second.work) == ("known", first.work)
    await timeline.settle("a")
    timeline.at(days=62)
    await Retention(timeline.database, days=30).run_once()
    third = await timeline.trigger(key="order-7")
    assert third.result == "queued"
    assert third.work != first.work


async def test_an_owed_trigger_has_its_work_from_its_own_decision(timeline):
    """This holds however late it is released, and however often its key was used before."""
    await timeline.declare(app_with(overlap="queue_one"))
    works = set()
    for month in range(3):
        timeline.at(days=31 * month)
        await timeline.trigger()
        assert (await timeline.trigger(key="order-7")).result == "owed"
        timeline.at(days=31 * month, minutes=5)
        while await timeline.under_way("a"):
            await timeline.settle("a")
        works.add((await timeline.trigger(key="order-7")).work)
        timeline.at(days=31 * (month + 1), minutes=-1)
        await timeline.tick()
        await timeline.settle("a")
        await Retention(timeline.database, days=30).run_once()
    assert len(works) == 3


async def test_a_coalesced_trigger_is_owed_again_under_a_name_that_is_free(timeline):
    """The name may exist from an earlier use of the same key."""
    await timeline.declare(app_with(overlap="queue_one"))
    await timeline.trigger(key="order-7")
    await timeline.settle("a", "coalesced")
    await timeline.settle("a")
    await timeline.rows("DELETE FROM scheduler.occurrence WHERE cause = 'trigger:order-7'")
    await timeline.trigger(key="order-7", input=7)
    await timeline.settle("a", "coalesced")
    [again] = await timeline.under_way("a")
    assert again["cause"] == "trigger+2:order-7"
    assert (await timeline.outbox(WorkQueued))[-1].input == 7


async def test_a_trigger_may_be_more_urgent_than_its_manifest(timeline):
    await timeline.declare(app_with(priority=2, overlap="queue_one"))
    await timeline.trigger(priority=9)
    await timeline.trigger()
    await timeline.settle("a")
    await timeline.trigger(priority=0, delay_seconds=60)
    await timeline.settle("a")
    await timeline.tick(minutes=1)
    assert [work.priority for work in await timeline.outbox(WorkQueued)] == [9, 2, 0]


async def test_a_trigger_that_was_coalesced_is_as_urgent_the_next_time(timeline):
    await timeline.declare(app_with(priority=2))
    await timeline.trigger(priority=9, start_within_seconds=60)
    await timeline.settle("a", "coalesced")
    await timeline.tick()
    queued = await timeline.outbox(WorkQueued)
    assert [work.priority for work in queued] == [9, 9]
    assert all(work.start_by is not None for work in queued)


async def test_a_delayed_trigger_waits_for_its_time_and_leaves_the_schedule_alone(timeline):
    await timeline.declare(app_with())
    timeline.at(minutes=30)
    answer = await timeline.trigger(delay_seconds=3600)
    assert answer.result == "owed"
    assert "2027-03-01 13:30:00 UTC" in answer.text
    assert (await timeline.tick(hours=1)).fired == 1, "the schedule continues"
    await timeline.settle("a")
    assert (await timeline.tick(minutes=89)).fired == 0
    assert (await timeline.tick(minutes=90)).fired == 1
    assert [row["cause"].partition(":")[0] for row in await timeline.under_way("a")] == ["trigger"]


async def test_while_one_is_under_way_it_is_brought_forward_instead(timeline):
    await timeline.declare(app_with())
    first = await timeline.trigger()
    second = await timeline.trigger()
    assert (second.result, second.work) == ("brought_forward", first.work)
    assert "no second one was queued" in second.text
    assert [request.work for request in await timeline.outbox(WorkBroughtForward)] == [first.work]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, []),
        ({"input": 99}, ["input"]),
        (
            {"input": None, "priority": 31, "start_within_seconds": 5},
            ["input", "priority", "start_within"],
        ),
    ],
)
async def test_what_is_brought_forward_keeps_its_terms_and_the_answer_says_so(
    timeline, fields, named
):
    await timeline.declare(app_with(kind=int | None))
    await timeline.trigger()
    answer = await timeline.trigger(**fields)
    assert (answer.result, answer.not_used) == ("brought_forward", named)
    assert ("were not used" in answer.text) == bool(named)
    assert f"keeps its own {', '.join(named)}" in answer.text or not named


async def test_a_trigger_waits_if_the_overlap_policy_allows_it(timeline):
    await timeline.declare(app_with(overlap="queue_one"))
    await timeline.trigger()
    assert (await timeline.trigger(input=2)).result == "owed"
    await timeline.settle("a")
    assert [work.input for work in await timeline.outbox(WorkQueued)] == [1, 2]


async def disable_manifest(timeline):
    await timeline.change("a", enabled=False)


async def disable_group(timeline):
    await timeline.change_group("ops", enabled=False)


async def pause_manifest(timeline):
    await timeline.do(pause.pause, PauseRequest(manifests=["a"]))


async def undeclare_manifest(timeline):
    left = App("test")
    left.job("job", group="ops")(lambda ctx, number: None)
    await timeline.declare(left, prune="disable")


@pytest.mark.parametrize(
    "hold", [disable_manifest, disable_group, pause_manifest, undeclare_manifest]
)
async def test_a_pending_trigger_of_a_held_manifest_keeps_its_input(timeline, hold):
    await timeline.declare(app_with(overlap="queue_one"))
    await timeline.trigger()
    assert (await timeline.trigger(input=2)).result == "owed"
    await hold(timeline)
    assert (await timeline.trigger(input=3)).result == "owed"
    await timeline.settle("a")
    await timeline.settle("a")
    assert [work.input for work in await timeline.outbox(WorkQueued)] == [1, 2, 3]


@pytest.mark.parametrize(
    "hold", [disable_manifest, disable_group, pause_manifest, undeclare_manifest]
)
async def test_a_delayed_trigger_comes_in_its_time_whatever_is_disabled_meanwhile(timeline, hold):
    await timeline.declare(app_with())
    await timeline.trigger(delay_seconds=60)
    await hold(timeline)
    assert (await timeline.tick(minutes=1)).fired == 1


async def test_a_disabled_manifest_can_be_triggered(timeline):
    await timeline.declare(app_with())
    await disable_manifest(timeline)
    await timeline.trigger(delay_seconds=60)
    assert (await timeline.tick(minutes=1)).fired == 1
    await timeline.settle("a")
    assert (await timeline.trigger()).result == "queued"


async def test_a_disabled_group_holds_it_and_says_so(timeline):
    await timeline.declare(app_with())
    await disable_group(timeline)
    answer = await timeline.trigger()
    assert answer.result == "queued"
    assert "its group is disabled" in answer.text
    [changed] = [change for change in await timeline.outbox(GroupChanged) if not change.enabled]
    assert changed.group == "ops"


async def test_a_blocked_manifest_asks_for_its_dead_letter(timeline):
    await timeline.declare(app_with())
    await timeline.trigger()
    await timeline.dead_letter("a")
    with pytest.raises(Rejected, match="blocked by a dead letter: retry that with"):
        await timeline.trigger()


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"input": "seven"}, "does not fit job 'job'"),
        ({"manifest": "nobody"}, "no manifest 'nobody'"),
    ],
)
async def test_an_invalid_trigger_is_refused_and_leaves_nothing_behind(timeline, fields, complaint):
    await timeline.declare(app_with())
    with pytest.raises(Rejected, match=complaint):
        await timeline.do(triggers.trigger, TriggerRequest(**({"manifest": "a"} | fields)))
    assert await timeline.ledger("a") == []


async def test_old_decisions_and_audit_are_deleted_but_not_open_work(timeline):
    await timeline.declare(app_with(overlap="queue_one"))
    for hour in (1, 2, 3):
        await timeline.tick(hours=hour)
    await timeline.settle("a")
    await timeline.declare(app_with(overlap="queue_one", priority=3))
    retention = Retention(timeline.database, days=30)
    before = await timeline.ledger("a")
    await retention.run_once()
    assert await timeline.ledger("a") == before
    timeline.at(days=40)
    await retention.run_once()
    left = await timeline.ledger("a")
    assert [(at, decision) for at, decision, _ in left] == [("120", "queued")], "still under way"
    assert await timeline.rows("SELECT * FROM scheduler.history") == []
    assert len(await timeline.rows("SELECT * FROM scheduler.timing")) == 1
