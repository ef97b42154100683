"""Dependents: they run after a success of their parent, or after an activation."""

from uuid import uuid4

import msgspec
import pytest
from headway import App, every
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway_contract.lifecycle import Activation
from headway_contract.work import WorkQueued
from headway_decisions.timing.cadence import Manual
from headway_decisions.timing.timing import Timing
from headway_scheduler.explain.explain import explain
from headway_scheduler.lookup import find_manifest
from headway_scheduler.outcomes import activate
from headway_scheduler.retention import Retention

pytestmark = pytest.mark.thorough

MANUAL = Timing(cadence=Manual())


class Page(msgspec.Struct):
    number: int


def family(**child) -> App:
    app = App("test")

    @app.job("job")
    def job(ctx): ...

    @app.job("page")
    def page(ctx, page: Page): ...

    chain = app.schedule("parent", job=job, when=every(hours=1))
    chain.include("child", job=job, **child)
    chain.include("sleeper", job=page, input=Page(0), dormant=True)
    app.schedule("stranger", job=job, when=every(hours=5))
    return app


async def run_parent(timeline, minute: float) -> None:
    timeline.at(minutes=minute)
    await timeline.trigger("parent", actor="me")
    await timeline.settle("parent")


async def queued_inputs(timeline, manifest: str) -> list:
    return [
        (work.input, work.priority)
        for work in await timeline.outbox(WorkQueued)
        if work.manifest == manifest
    ]


async def test_every_success_of_the_parent_queues_the_dependent(timeline):
    await timeline.declare(family(priority=20))
    await timeline.tick(hours=1)
    await timeline.settle("parent")
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:1"]
    await timeline.settle("child")
    await run_parent(timeline, 70)
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:2"]
    assert await queued_inputs(timeline, "child") == [(None, 31), (None, 31)], "boosted, clamped"


@pytest.mark.breaks_tables("deletes outstanding work, to settle it again")
async def test_only_a_success_counts(timeline):
    await timeline.declare(family())
    for outcome in ("cancelled", "coalesced"):
        await timeline.trigger("parent")
        await timeline.settle("parent", outcome)
        await timeline.rows("DELETE FROM scheduler.occurrence WHERE decision = 'owed'")
        await timeline.rows("DELETE FROM scheduler.work")
    assert await timeline.ledger("child") == []


async def test_successes_during_a_run_are_neither_lost_nor_repeated(timeline):
    await timeline.declare(family())
    for minute in (1, 2, 3, 4):
        await run_parent(timeline, minute)
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:1"]
    await timeline.settle("child", "cancelled")
    assert await timeline.ledger("child") == [
        ("success:1", "queued", None),
        ("success:4", "queued", None),
        ("successes:2/3", "skipped", "collapsed_into_a_later_success"),
    ]
    await timeline.settle("child")
    assert await timeline.under_way("child") == []


async def test_a_repeated_outcome_queues_no_second_dependent(timeline):
    await timeline.declare(family())
    await timeline.trigger("parent")
    [work] = await timeline.under_way("parent")
    await timeline.settle("parent")
    await timeline.settle("child")
    before = await timeline.rows(
        "SELECT success_number FROM scheduler.manifest ORDER BY external_id"
    )
    from headway_contract.settled import WorkSettled

    again = WorkSettled(
        work=work["id"],
        round=1,
        manifest_id=work["manifest_id"],
        group="any",
        outcome="completed",
        runs=1,
        attempts=1,
        settled_at=timeline.clock.at,
    )
    await timeline.tell(again, again)
    assert (
        await timeline.rows("SELECT success_number FROM scheduler.manifest ORDER BY external_id")
        == before
    )
    assert await timeline.under_way("child") == []


async def test_coalesced_work_is_queued_again(timeline):
    await timeline.declare(family())
    await run_parent(timeline, 1)
    await timeline.settle("child", "coalesced")
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success+1:1"]
    await timeline.settle("child", "coalesced")
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success+2:1"]
    await timeline.settle("child")
    assert await timeline.under_way("child") == []


async def test_a_disabled_dependent_skips_a_success_and_a_blocked_one_runs_later(timeline):
    await timeline.declare(family())
    await timeline.change("child", enabled=False)
    await run_parent(timeline, 1)
    await timeline.change("child", enabled=True)
    assert await timeline.ledger("child") == [("success:1", "skipped", "manifest_disabled")]
    await run_parent(timeline, 2)
    work, letter = await timeline.dead_letter("child")
    await run_parent(timeline, 3)
    assert await timeline.under_way("child") == []
    await timeline.resolve("child", work, letter, retried=False)
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:3"]


async def switch_group(timeline, *, enabled: bool) -> None:
    await timeline.change_group("job", enabled=enabled, actor="me")


async def explained(timeline) -> str:
    async with timeline.database.transaction() as connection:
        row = await find_manifest(connection, "child")
        answer = await explain(connection, row, at=None, now=timeline.clock.at, kept_days=30)
    return answer.text


async def test_a_disabled_group_runs_once_for_all_successes_later(timeline):
    await timeline.declare(family())
    await switch_group(timeline, enabled=False)
    for minute in (1, 2, 3):
        await run_parent(timeline, minute)
    assert await timeline.under_way("child") == []
    assert (
        "Success number 3 of 'parent' is pending: one run follows when its group is enabled."
        in (await explained(timeline))
    )
    timeline.at(minutes=4)
    await switch_group(timeline, enabled=True)
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:3"]
    await timeline.settle("child")
    assert await timeline.ledger("child") == [
        ("success:3", "queued", None),
        ("successes:1/2", "skipped", "collapsed_into_a_later_success"),
    ]
    assert "owed" not in await explained(timeline)


async def test_a_disabled_dependent_skips_a_success_in_a_disabled_group_too(timeline):
    await timeline.declare(family())
    await timeline.change("child", enabled=False)
    await switch_group(timeline, enabled=False)
    await run_parent(timeline, 1)
    await timeline.change("child", enabled=True)
    await switch_group(timeline, enabled=True)
    assert await timeline.ledger("child") == [("success:1", "skipped", "manifest_disabled")]


async def test_a_pending_success_of_a_disabled_group_survives_its_parent(timeline):
    await timeline.declare(family())
    await switch_group(timeline, enabled=False)
    await run_parent(timeline, 1)
    await timeline.declare(orphaned())
    assert await timeline.ledger("child") == [("success:1", "owed", "group_disabled")]
    assert "it runs as soon as its group is enabled" in await explained(timeline)
    await switch_group(timeline, enabled=True)
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:1"]


async def test_a_new_dependent_waits_for_the_next_success(timeline):
    alone = App("test")
    alone.job("job")(lambda ctx: None)
    alone.schedule("parent", job="job", when=every(hours=1))
    await timeline.declare(alone)
    await run_parent(timeline, 1)
    await timeline.declare(family())
    assert await timeline.ledger("child") == []
    await run_parent(timeline, 2)
    assert await timeline.ledger("child") == [("success:2", "queued", None)]


def orphaned(**terms) -> App:
    """Return the family with a child that has no parent or another parent."""
    app = App("test")
    app.job("job")(lambda ctx: None)
    for name in ("parent", "stranger"):
        app.schedule(name, job="job", when=every(hours=1))
    if "parent" in terms:
        app.manifest(terms.pop("parent")).include("child", job="job", **terms)
    else:
        app.schedule("child", job="job", when=every(hours=7))
    return app


@pytest.mark.parametrize(
    "changed",
    [orphaned(parent="stranger"), orphaned(parent="parent", dormant=True), orphaned()],
    ids=["another parent", "dormant", "a clock of its own"],
)
async def test_a_success_is_not_lost_when_a_deployment_removes_the_parent(timeline, changed):
    await timeline.declare(family())
    await run_parent(timeline, 1)
    await run_parent(timeline, 2)
    await timeline.declare(changed)
    await timeline.settle("child")
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:2"]
    await timeline.settle("child")
    assert await timeline.ledger("child") == [
        ("success:1", "queued", None),
        ("success:2", "queued", None),
    ]


async def test_a_success_is_not_lost_when_the_parent_is_pruned(timeline):
    await timeline.declare(family())
    child = ManifestDefinition(
        external_id="extra", job="job", group="extra", timing=MANUAL, depends_on="parent"
    )
    await timeline.declare(Definitions(owner=API_OWNER, manifests=(child,)))
    await run_parent(timeline, 1)
    await run_parent(timeline, 2)
    left = App("test")
    left.job("job")(lambda ctx: None)
    await timeline.declare(left)
    await timeline.settle("extra")
    assert [row["cause"] for row in await timeline.under_way("extra")] == ["success:2"]


async def test_a_trigger_runs_before_a_hundred_pending_activations(timeline):
    await timeline.declare(family())
    await timeline.change("sleeper", enabled=False)
    owed = [Activation(manifest="sleeper", key=f"{n}", input={"number": n}) for n in range(120)]
    await timeline.activate("parent", uuid4(), *owed)
    assert await timeline.under_way("sleeper") == []
    timeline.at(minutes=1)
    await timeline.trigger("sleeper", input={"number": 500}, actor="me")
    assert [given["number"] for given, _ in await queued_inputs(timeline, "sleeper")] == [500]


async def test_a_dormant_dependent_runs_once_per_activation(timeline):
    await timeline.declare(family())
    await run_parent(timeline, 1)
    assert await timeline.ledger("sleeper") == []
    work = uuid4()
    wanted = [
        Activation(manifest="sleeper", key=key, input={"number": n}) for n, key in enumerate("xyz")
    ]
    await timeline.activate("parent", work, *wanted)
    await timeline.activate("parent", work, *wanted)
    assert len(await timeline.under_way("sleeper")) == 1
    await timeline.settle("sleeper")
    await timeline.settle("sleeper")
    await timeline.settle("sleeper")
    assert await timeline.under_way("sleeper") == []
    inputs = await queued_inputs(timeline, "sleeper")
    assert sorted(given["number"] for given, _ in inputs) == [0, 1, 2]
    assert {priority for _, priority in inputs} == {16}


async def test_a_lost_activation_is_repeated_by_the_outcome(timeline):
    await timeline.declare(family())
    await timeline.trigger("parent")
    await timeline.settle(
        "parent", activations=[Activation(manifest="sleeper", input={"number": 7})]
    )
    assert [given for given, _ in await queued_inputs(timeline, "sleeper")] == [{"number": 7}]


async def test_the_outcome_of_a_long_run_does_not_repeat_its_activations(timeline):
    """Activations are stored until the run has ended and are repeated with its outcome."""
    await timeline.declare(family())
    await timeline.trigger("parent")
    [parent] = await timeline.under_way("parent")
    woken = Activation(manifest="sleeper", key="k", input={"number": 7})
    await timeline.activate("parent", parent["id"], woken)
    await timeline.settle("sleeper")
    timeline.at(days=31)
    await Retention(timeline.database, days=30).run_once()
    await timeline.settle("parent", activations=[woken])
    assert await timeline.under_way("sleeper") == []
    await Retention(timeline.database, days=30).run_once()
    assert await timeline.ledger("sleeper") == []


async def test_an_activation_without_an_input_uses_the_declared_input(timeline):
    await timeline.declare(family())
    await timeline.activate("parent", uuid4(), Activation(manifest="sleeper"))
    assert [given for given, _ in await queued_inputs(timeline, "sleeper")] == [{"number": 0}]


async def test_an_activation_of_a_disabled_dependent_waits_with_its_input(timeline):
    await timeline.declare(family())
    await timeline.change("sleeper", enabled=False)
    await timeline.activate("parent", uuid4(), Activation(manifest="sleeper", input={"number": 5}))
    assert await timeline.under_way("sleeper") == []
    await timeline.change("sleeper", enabled=True)
    assert [given for given, _ in await queued_inputs(timeline, "sleeper")] == [{"number": 5}]


async def test_activations_are_checked_in_advance(timeline):
    await timeline.declare(family())
    wanted = [
        Activation(manifest="sleeper", input={"number": 1}),
        Activation(manifest="sleeper", input={"number": "one"}),
        Activation(manifest="child"),
        Activation(manifest="stranger"),
        Activation(manifest="nobody"),
    ]
    async with timeline.database.acquire() as connection:
        found = await activate.problems(connection, "parent", wanted)
        other = await activate.problems(connection, "stranger", wanted[:1])
    assert [line.partition(":")[0] for line in found] == [
        "cannot activate 'sleeper'",
        "cannot activate 'child'",
        "cannot activate 'stranger'",
        "cannot activate 'nobody'",
    ]
    assert "not dormant" in found[1]
    assert "no dependent of the manifest" in other[0]


async def test_an_input_without_a_concurrency_key_is_refused_in_advance(timeline):
    """An activation is checked like a trigger, before the call returns."""
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.job("page", concurrency_key="page:{input.number}")(lambda ctx, page: None)
    chain = app.schedule("parent", job="job", when=every(hours=1))
    chain.include("sleeper", job="page", input={"number": 0}, dormant=True)
    await timeline.declare(app)
    wanted = [Activation(manifest="sleeper", input=given) for given in ({"number": 1}, {"page": 1})]
    async with timeline.database.acquire() as connection:
        [found] = await activate.problems(connection, "parent", wanted)
    assert found.startswith("cannot activate 'sleeper': concurrency_key: {input.number} is missing")


async def test_a_forbidden_activation_is_ignored(timeline):
    await timeline.declare(family())
    await timeline.activate(
        "stranger", uuid4(), Activation(manifest="sleeper", input={"number": 1})
    )
    await timeline.activate("parent", uuid4(), Activation(manifest="child"))
    assert await timeline.ledger("sleeper") == await timeline.ledger("child") == []


async def test_an_input_that_no_longer_fits_is_recorded_in_the_ledger(timeline):
    await timeline.declare(family())
    await timeline.activate(
        "parent", uuid4(), Activation(manifest="sleeper", input={"number": "x"})
    )
    [(_, decision, reason)] = await timeline.ledger("sleeper")
    assert decision == "skipped"
    assert reason.startswith("invalid_input: ")
