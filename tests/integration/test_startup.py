"""Service start: declaration, pruning, one-shots and operator settings."""

import pytest
from headway import App, InvalidDefinitions, allow, cron, every, once
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway_contract.manifests import DeleteRequest
from headway_decisions.timing.cadence import Every, Manual, Once
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import DatabaseUnavailable
from headway_scheduler.declare import startup
from headway_scheduler.fire import tick as tick_module
from headway_scheduler.operate import changes

pytestmark = pytest.mark.thorough


def app_with(*names: str, **options) -> App:
    app = App("billing")
    app.job("job", title="The job", category="Ops", description="Works.")(lambda ctx: None)
    for name in names:
        app.schedule(name, job="job", when=every(hours=1), **options)
    return app


def shot(at: str) -> App:
    app = App("billing")
    app.job("job")(lambda ctx: None)
    app.schedule("a", job="job", when=once(at))
    return app


def at_run_time(name: str, cadence=None, **fields) -> Definitions:
    made = ManifestDefinition(
        external_id=name,
        job="job",
        group="extra",
        timing=Timing(cadence=cadence or Manual()),
        **fields,
    )
    return Definitions(owner=API_OWNER, manifests=(made,))


async def test_a_dependent_that_stays_loses_its_reference(timeline):
    await timeline.declare(app_with("a"))
    await timeline.declare(at_run_time("child", depends_on="a"))
    await timeline.declare(Definitions(owner="billing"))
    assert (await timeline.manifest("child"))["depends_on"] is None
    await timeline.confirm_prunes()
    assert await timeline.manifest("child") is not None


async def test_a_batch_whose_declaration_is_gone_is_pruned_with_what_left_others(timeline):
    app = app_with("single")
    for name in ("one", "two"):
        app.schedule_many(name, job="job", items={"a": None, "b": None}, when=every(hours=1))
    await timeline.declare(app)
    less = app_with()
    less.schedule_many("one", job="job", items={"b": None}, when=every(hours=1))
    assert (await timeline.declare(less)).pruned == ["one-a", "single", "two-a", "two-b"]


async def test_a_new_manifest_waits_for_its_first_time(timeline):
    app = app_with()
    app.schedule("nightly", job="job", when=cron("15 13 * * *"))
    await timeline.declare(app)
    assert (await timeline.tick()).fired == 0, "not at once"
    assert (await timeline.tick(hours=1, minutes=15)).fired == 1


async def test_the_tick_ignores_capacity(timeline):
    app = app_with(*"abc")
    app.group("job", max_active=1)
    await timeline.declare(app)
    assert (await timeline.tick(hours=1)).fired == 3


async def test_a_tick_that_fails_leaves_nothing_behind(timeline, monkeypatch):
    await timeline.declare(app_with("a"))
    before = await timeline.manifest("a")
    timeline.at(hours=1)
    kept = tick_module.advance

    async def fail(*arguments, **options):
        await kept(*arguments, **options)
        raise RuntimeError("the power is gone")

    monkeypatch.setattr(tick_module, "advance", fail)
    with pytest.raises(RuntimeError):
        await timeline.tick()
    assert await timeline.ledger("a") == []
    assert await timeline.under_way("a") == []
    assert await timeline.manifest("a") == before
    monkeypatch.undo()
    assert (await timeline.tick()).fired == 1


async def test_a_success_of_a_disabled_parent_counts(timeline):
    app = app_with("a")
    app.manifest("a").include("child", job="job")
    await timeline.declare(app)
    await timeline.trigger("a")
    await timeline.change("a", enabled=False)
    await timeline.settle("a")
    await timeline.tick()
    assert [row["cause"] for row in await timeline.under_way("child")] == ["success:1"]


async def test_the_timing_of_an_applications_manifest_cannot_be_changed_from_outside(timeline):
    await timeline.declare(app_with("a"))
    with pytest.raises(InvalidDefinitions, match="belongs to the application 'billing'"):
        await timeline.declare(at_run_time("a", Every(60)))
    assert (await timeline.manifest("a"))["timing"]["cadence"]["seconds"] == 3600


async def test_display_data_is_stored_and_follows_the_code(timeline):
    await timeline.declare(app_with("a"))
    [row] = await timeline.rows("SELECT title, category, description FROM scheduler.job")
    assert tuple(row) == ("The job", "Ops", "Works.")
    app = App("billing")
    app.job("job", title="Another")(lambda ctx: None)
    await timeline.declare(app)
    [row] = await timeline.rows("SELECT title, category, description FROM scheduler.job")
    assert tuple(row) == ("Another", "", "")


async def test_a_database_that_hiccups_is_tried_again_five_times(timeline, monkeypatch):
    pauses, failures = [], [5]
    kept = startup.apply

    async def sleep(seconds):
        pauses.append(seconds)

    async def hiccup(*arguments, **options):
        if failures[0]:
            failures[0] -= 1
            raise DatabaseUnavailable("it restarts")
        return await kept(*arguments, **options)

    monkeypatch.setattr(startup.asyncio, "sleep", sleep)
    monkeypatch.setattr(startup, "apply", hiccup)
    begin = {"policy": "delete", "may_fire": True}
    applied = await startup.apply_at_start(timeline.database, app_with("a").definitions(), **begin)
    assert applied.created == ["a"]
    assert pauses == [2, 4, 8, 16, 32]
    failures[0] = 6
    with pytest.raises(DatabaseUnavailable):
        await startup.apply_at_start(timeline.database, app_with("a").definitions(), **begin)


async def test_what_is_no_longer_declared_is_pruned_before_the_first_tick(world):
    await world.declare(app_with("a", "b"))
    await world.make_due("a", "b")
    await world.scheduler(app_with("a"))
    await world.until("SELECT count(*) FROM scheduler.occurrence")
    rows = await world.rows(
        "SELECT external_id FROM scheduler.occurrence JOIN scheduler.manifest ON id = manifest_id"
    )
    assert {row["external_id"] for row in rows} == {"a"}


async def touch(timeline, name):
    for enabled in (False, True):
        await timeline.change(name, enabled=enabled)


async def test_a_touched_manifest_comes_back_after_policy_disable(timeline):
    await timeline.declare(app_with("a", "b"), prune="disable")
    await touch(timeline, "b")
    await timeline.declare(app_with("a"), prune="disable")
    await timeline.declare(app_with("a", "b"), prune="disable")
    assert (await timeline.manifest("b"))["enabled"]


async def test_a_touched_one_shot_is_armed_again(timeline):
    await timeline.declare(shot("2027-03-01 12:10"))
    await touch(timeline, "a")
    await timeline.tick(minutes=11)
    await timeline.settle("a")
    await timeline.declare(shot("2027-03-01 14:00"))
    assert (await timeline.tick(minutes=120)).fired == 1


async def test_what_an_operator_disabled_and_code_dropped_can_be_deleted(timeline):
    await timeline.declare(app_with("a", "b"), prune="disable")
    await timeline.change("b", enabled=False)
    await timeline.declare(app_with("a"), prune="disable")
    await timeline.do(changes.delete, DeleteRequest(manifest="b"))
    assert await timeline.manifest("b") is None


async def test_the_older_of_two_dead_letters_still_blocks(timeline):
    await timeline.declare(app_with("a", overlap=allow(2)))
    for hour in (1, 2):
        await timeline.tick(hours=hour)
    first = await timeline.dead_letter("a")
    second = await timeline.dead_letter("a")
    await timeline.resolve("a", *second, retried=False)
    assert (await timeline.manifest("a"))["blocked_by"] == first[1]


async def test_a_one_shot_that_was_long_past_when_declared_says_so(timeline):
    applied = await timeline.declare(shot("2027-03-01 11:00"))
    assert applied.warnings == [
        "manifest 'a' was to fire once at 2027-03-01 11:00:00 UTC, which is past: it does not "
        "fire, unless it is given a later time"
    ]
    assert (await timeline.declare(shot("2027-03-01 11:00"))).warnings == [], "no warning twice"
    row = await timeline.manifest("a")
    assert (row["enabled"], row["disabled_by"], row["next_due_at"]) == (False, "once", None)
    assert await timeline.ledger("a") == [("-60", "skipped", "missed")]
    assert (await timeline.tick()).fired == 0


async def test_a_one_shot_at_run_time_is_not_for_the_past(timeline):
    await timeline.declare(app_with())
    with pytest.raises(InvalidDefinitions, match="'x' was to fire once at 2027-03-01 11:00"):
        await timeline.declare(at_run_time("x", Once(at="2027-03-01 11:00")))
    await timeline.declare(at_run_time("x", Once(at="2027-03-01 12:30")))
    timeline.at(hours=2)
    again = await timeline.declare(at_run_time("x", Once(at="2027-03-01 12:30")))
    assert again.unchanged == 1, "a request that was made in time may be repeated"


async def test_a_one_shot_that_is_a_moment_late_still_fires(timeline):
    timeline.at(seconds=30)
    await timeline.declare(shot("2027-03-01 12:00"))
    assert (await timeline.tick()).fired == 1


async def test_a_scheduler_that_does_not_tick_declares_and_fires_nothing(world):
    await world.declare(app_with("a", "b"))
    await world.make_due("a", "b")
    await world.scheduler(app_with("a", priority=3), tick="off")
    assert await world.value("SELECT count(*) FROM scheduler.work") == 0
    assert (
        await world.value(
            "SELECT (terms ->> 'priority')::int FROM scheduler.manifest WHERE pruning_at IS NULL"
        )
        == 3
    )
    assert await world.value("SELECT count(*) FROM scheduler.occurrence") == 0
    await world.scheduler(app_with("a", priority=3))
    await world.until("SELECT bool_and(decision = 'queued') FROM scheduler.occurrence")


async def test_a_declaration_records_the_missed_times_of_the_replaced_timing(timeline):
    def apply(app: App):
        terms = {"policy": "delete", "may_fire": False}
        return startup.apply(timeline.database, app.definitions(), **terms)

    await apply(app_with("a"))
    timeline.at(hours=2.5)
    await apply(app_with("a", priority=3))
    assert await timeline.ledger("a") == [], "the next tick decides it"
    await apply(shot("2027-03-02 12:00"))
    assert await timeline.ledger("a") == [("60-120", "skipped", "missed")]


async def test_a_manifest_that_policy_keep_keeps_can_be_deleted(timeline):
    await timeline.declare(app_with("a", "b"), prune="keep")
    await timeline.declare(app_with("a"), prune="keep")
    await timeline.do(changes.delete, DeleteRequest(manifest="b"))
    assert await timeline.manifest("b") is None
