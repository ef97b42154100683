"""Pruning: manifests that are no longer declared or that an operator deletes."""

import pytest
from headway import App, InvalidDefinitions, every
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway_contract.manifests import DeleteRequest
from headway_decisions.timing.cadence import Every
from headway_decisions.timing.timing import Timing
from headway_errors import Rejected
from headway_scheduler.declare import prune
from headway_scheduler.operate import changes
from msgspec import structs


def app_with(*names: str, owner: str = "billing", generation: int = 0) -> App:
    app = App(owner, generation=generation)
    app.job("job", group=f"{owner}-jobs")(lambda ctx: None)
    for name in names:
        app.schedule(name, job="job", when=every(hours=1))
    return app


def batch(*items: str, prune: bool = True) -> App:
    app = App("billing")
    app.job("sync")(lambda ctx, number: None)
    app.schedule_many(
        "sync", job="sync", items=dict.fromkeys(items, 1), when=every(hours=1), prune=prune
    )
    return app


async def names(timeline) -> set[str]:
    rows = await timeline.rows(
        "SELECT external_id FROM scheduler.manifest WHERE pruning_at IS NULL"
    )
    return {row["external_id"] for row in rows}


async def test_an_orphan_is_deleted_with_all_that_belongs_to_it(timeline):
    await timeline.declare(app_with("a", "b"))
    await timeline.tick(hours=1)
    applied = await timeline.declare(app_with("a"))
    assert applied.pruned == ["b"]
    assert await names(timeline) == {"a"}
    rows = await timeline.rows("SELECT * FROM scheduler.outbox WHERE message_id LIKE 'pruned.%'")
    assert len(rows) == 1
    assert len(await timeline.under_way("b")) == 1, "until the dispatcher has confirmed"
    assert (await timeline.tick(hours=5)).fired == 0, "and it never fires again"
    await timeline.confirm_prunes()
    rows = await timeline.rows(
        "SELECT (SELECT count(*) FROM scheduler.manifest) AS manifests,"
        " (SELECT count(*) FROM scheduler.work) AS works,"
        " (SELECT count(DISTINCT manifest_id) FROM scheduler.occurrence) AS decided,"
        " (SELECT count(*) FROM scheduler.history WHERE type = 'headway.manifest.pruned.v1')"
        "   AS audited"
    )
    assert tuple(rows[0].values()) == (1, 1, 1, 1)


async def test_its_dead_letters_go_with_it(timeline):
    await timeline.declare(app_with("a", "b"))
    await timeline.tick(hours=1)
    (_, kept), _ = [await timeline.dead_letter(name) for name in ("a", "b")]
    await timeline.declare(app_with("a"))
    await timeline.confirm_prunes()
    rows = await timeline.rows("SELECT dead_letter FROM scheduler.unresolved")
    assert [row["dead_letter"] for row in rows] == [kept]


async def test_its_id_is_free_at_once_and_the_new_one_is_another(timeline):
    await timeline.declare(app_with("a", "b"))
    first = await timeline.id_of("b")
    await timeline.declare(app_with("a"))
    await timeline.declare(app_with("a", "b"))
    assert await timeline.id_of("b") != first
    await timeline.confirm_prunes()
    assert await names(timeline) == {"a", "b"}


async def test_a_dependent_may_get_another_parent_when_the_old_one_goes(timeline):
    app = app_with("a")
    app.manifest("a").include("child", job="job")
    await timeline.declare(app)
    other = app_with("x")
    other.manifest("x").include("child", job="job")
    await timeline.declare(other)
    assert (await timeline.manifest("child"))["depends_on"] == await timeline.id_of("x")
    await timeline.confirm_prunes()
    assert await names(timeline) == {"x", "child"}


async def test_an_empty_configuration_prunes_all_that_it_owns_and_no_more(timeline):
    await timeline.declare(app_with("a", "b"))
    await timeline.declare(app_with("c", owner="crm"))
    await timeline.declare(Definitions(owner="billing"))
    assert await names(timeline) == {"c"}
    await timeline.confirm_prunes()
    rows = await timeline.rows("SELECT name FROM scheduler.manifest_group")
    assert [row["name"] for row in rows] == ["crm-jobs"], "and the groups that are empty now"


async def test_disable_keeps_the_record_and_coming_back_goes_on(timeline):
    await timeline.declare(app_with("a", "b"), prune="disable")
    first = await timeline.id_of("b")
    applied = await timeline.declare(app_with("a"), prune="disable")
    assert (applied.pruned, applied.disabled) == ([], ["b"])
    assert (await timeline.tick(hours=2.5)).fired == 1
    await timeline.declare(app_with("a", "b"), prune="disable")
    row = await timeline.manifest("b")
    assert (row["id"], row["enabled"]) == (first, True)
    assert await timeline.ledger("b") == [("60-120", "skipped", "manifest_disabled")]


async def test_a_group_that_the_code_states_outlives_its_last_manifest(timeline):
    def app_of(*names: str, stated: bool = True) -> App:
        app = app_with(*names)
        if stated:
            app.group("billing-jobs", max_active=2)
        return app

    async def groups() -> list[tuple[str, int | None]]:
        rows = await timeline.rows("SELECT name, max_active FROM scheduler.manifest_group")
        return [(row["name"], row["max_active"]) for row in rows]

    await timeline.declare(app_of("a"))
    assert (await timeline.declare(app_of())).pruned == ["a"]
    await timeline.confirm_prunes()
    assert await groups() == [("billing-jobs", 2)]
    await timeline.declare(app_of("a"))
    await timeline.declare(app_of(stated=False))
    await timeline.confirm_prunes()
    assert await groups() == []


async def test_times_missed_before_it_was_disabled_are_recorded_as_missed(timeline):
    await timeline.declare(app_with("a", "b"), prune="disable")
    timeline.at(hours=2.5)
    await timeline.declare(app_with("a"), prune="disable")
    timeline.at(hours=4.5)
    await timeline.declare(app_with("a", "b"), prune="disable")
    assert await timeline.ledger("b") == [
        ("60-120", "skipped", "missed"),
        ("180-240", "skipped", "manifest_disabled"),
    ]


async def test_keep_leaves_it_firing(timeline):
    await timeline.declare(app_with("a", "b"), prune="keep")
    await timeline.declare(app_with("a"), prune="keep")
    assert (await timeline.tick(hours=1)).fired == 2


async def test_what_left_a_batch_is_pruned_also_when_orphans_are_kept(timeline):
    await timeline.declare(batch("a", "b"), prune="keep")
    assert await names(timeline) == {"sync-a", "sync-b"}
    assert (await timeline.declare(batch("b", "c"), prune="keep")).pruned == ["sync-a"]
    assert (await timeline.declare(batch(), prune="keep")).pruned == ["sync-b", "sync-c"]


async def test_a_batch_that_does_not_prune_keeps_what_left_it(timeline):
    await timeline.declare(batch("a", "b", prune=False))
    assert (await timeline.declare(batch("b", prune=False))).pruned == []
    assert await names(timeline) == {"sync-a", "sync-b"}


async def test_a_prune_that_fails_rolls_nothing_back_and_is_a_warning(timeline, monkeypatch):
    await timeline.declare(batch("a"))

    async def fail(*arguments, **options):
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(prune, "mark", fail)
    applied = await timeline.declare(batch("b"))
    assert applied.created == ["sync-b"]
    assert "the disk is full" in applied.warnings[0]
    assert await names(timeline) == {"sync-a", "sync-b"}
    monkeypatch.undo()
    assert (await timeline.declare(batch("b"))).pruned == ["sync-a"], "at the next start"


async def test_an_old_process_does_not_undo_a_newer_ones_declaration(timeline):
    await timeline.declare(app_with("a", generation=1))
    await timeline.declare(app_with("a", "b", generation=2))
    applied = await timeline.declare(app_with("a", generation=1))
    assert applied.stale
    assert "the older generation 1 changes nothing" in applied.warnings[0]
    assert await names(timeline) == {"a", "b"}
    assert (await timeline.declare(app_with("a", generation=2))).pruned == ["b"]


async def test_what_was_made_at_run_time_is_never_pruned_by_a_start(timeline):
    await timeline.declare(app_with("a"))
    made = ManifestDefinition(
        external_id="x", job="job", group="extra", timing=Timing(cadence=Every(60))
    )
    at_run_time = Definitions(owner=API_OWNER, manifests=(made,))
    await timeline.declare(at_run_time)
    await timeline.declare(
        Definitions(owner=API_OWNER, manifests=(structs.replace(made, external_id="y"),))
    )
    await timeline.declare(Definitions(owner="billing"))
    assert await names(timeline) == {"x", "y"}


async def test_only_what_was_made_at_run_time_can_be_deleted(timeline):
    await timeline.declare(app_with("a"))
    made = ManifestDefinition(
        external_id="x", job="job", group="extra", timing=Timing(cadence=Every(60))
    )
    await timeline.declare(Definitions(owner=API_OWNER, manifests=(made,)))
    with pytest.raises(Rejected, match="remove it from the code"):
        await timeline.do(changes.delete, DeleteRequest(manifest="a"))
    await timeline.do(changes.delete, DeleteRequest(manifest="x", actor="me"))
    assert await names(timeline) == {"a"}
    with pytest.raises(Rejected, match="no manifest 'x'"):
        await timeline.change("x", enabled=False)


async def test_an_undeclared_job_is_refused(timeline):
    made = ManifestDefinition(
        external_id="x", job="ghost", group="extra", timing=Timing(cadence=Every(60))
    )
    with pytest.raises(InvalidDefinitions, match="'ghost', which is not declared"):
        await timeline.declare(Definitions(owner=API_OWNER, manifests=(made,)))


async def test_a_circle_over_stored_manifests_is_refused_with_its_path(timeline):
    await timeline.declare(app_with())

    def made(name: str, parent: str | None) -> ManifestDefinition:
        return ManifestDefinition(
            external_id=name,
            job="job",
            group="extra",
            timing=Timing(cadence=Every(60)),
            depends_on=parent,
        )

    first = Definitions(
        owner=API_OWNER, manifests=(made("x", None), made("y", "x"), made("z", "y"))
    )
    await timeline.declare(first)
    with pytest.raises(InvalidDefinitions, match="x → y → z → x"):
        await timeline.declare(Definitions(owner=API_OWNER, manifests=(made("x", "z"),)))
    with pytest.raises(InvalidDefinitions, match="depends on 'nobody', which does not exist"):
        await timeline.declare(Definitions(owner=API_OWNER, manifests=(made("x", "nobody"),)))
