"""Applications: their declaring source, and how they are renamed and retired."""

import logging

import pytest
import pytest_asyncio
from headway import App, every
from headway_contract.definitions import RetireAppRequest
from headway_contract.manifests import DeleteRequest
from headway_contract.work import GroupChanged, JobChanged
from headway_errors import NotFound, Rejected
from headway_scheduler.operate import applications, changes
from support.world import World


def app_with(
    *names: str, owner: str = "billing", minutes: int = 60, generation: int = 0, job: str = "job"
) -> App:
    app = App(owner, generation=generation)
    app.job(job, group="ops")(lambda ctx: None)
    app.group("ops", max_active=3)
    for name in names:
        app.schedule(name, job=job, when=every(minutes=minutes))
    app.schedule_many(f"{job}-many", job=job, items={"x": None}, when=every(hours=1))
    return app


def definitions(*names: str, **options):
    return app_with(*names, **options).definitions()


@pytest_asyncio.fixture
async def client(world: World):
    await world.provision()
    await world.scheduler(tick="off")
    async with world.client("ada") as made:
        yield made


async def owned(world: World) -> dict[str, int]:
    """Return the interval in minutes of each manifest that is not being pruned."""
    rows = await world.rows(
        "SELECT external_id, timing -> 'cadence' AS cadence FROM scheduler.manifest"
        " WHERE pruning_at IS NULL AND batch IS NULL"
    )
    return {row["external_id"]: row["cadence"]["seconds"] // 60 for row in rows}


async def application(world: World, name: str = "billing") -> tuple:
    [row] = await world.rows(
        "SELECT source, generation, declared_by FROM scheduler.application WHERE name = $1", name
    )
    return tuple(row)


async def audited(world: World, kind: str) -> list[tuple[str, str]]:
    rows = await world.rows(
        "SELECT subject, source FROM scheduler.history WHERE type = $1 ORDER BY id",
        f"headway.application.{kind}.v1",
    )
    return [tuple(row) for row in rows]


class TestOwnership:
    """An application belongs to the source that declared it last."""

    @pytest.mark.parametrize("generation", [0, 9])
    async def test_a_person_changes_nothing_that_code_declares(self, world, client, generation):
        await world.declare(app_with("a", generation=3))
        for wanted in (definitions("a", minutes=1, generation=generation), definitions()):
            planned = await client.plan(wanted)
            assert "'billing' is declared by its code" in planned.refused
            assert "--take-over" in planned.refused
            with pytest.raises(Rejected, match=r"'billing' is declared by its code.*--take-over"):
                await client.apply(wanted)
        assert await owned(world) == {"a": 60}
        assert await application(world) == ("code", 3, "app/billing")
        again = await world.declare(app_with("a", minutes=30, generation=3))
        assert not again.stale
        assert await owned(world) == {"a": 30}

    async def test_a_take_over_is_audited_and_lasts_until_it_is_given_back(
        self, world, client, caplog
    ):
        await world.declare(app_with("a", generation=3))
        wanted = definitions("a", minutes=1)
        planned = await client.plan(wanted, take_over=True)
        assert (planned.refused, planned.moved) == ("", ["a"])
        assert "'billing' is taken over from its code (generation 3" in planned.warnings[0]
        assert await application(world) == ("code", 3, "app/billing"), "a plan changes nothing"
        applied = await client.apply(wanted, take_over=True)
        assert applied.warnings == planned.warnings
        assert await application(world) == ("files", 0, "operator/ada")
        assert await audited(world, "taken_over") == [("billing", "operator/ada")]
        assert (await client.apply(definitions("a", minutes=2))).moved == ["a"], "no --take-over"
        with caplog.at_level(logging.WARNING):
            await world.scheduler(app_with("a", generation=4), tick="off")
        assert "'billing' belongs to applied files" in caplog.text
        assert "headway apps give-back billing" in caplog.text
        assert await owned(world) == {"a": 2}
        await client.give_back_app("billing")
        assert await audited(world, "given_back") == [("billing", "operator/ada")]
        await world.declare(app_with("a", generation=3))
        assert await owned(world) == {"a": 60}
        assert await application(world) == ("code", 3, "app/billing")
        assert "nothing to change" in (await client.give_back_app("billing")).text

    async def test_files_raise_their_generation_with_a_warning(self, world, client):
        await client.apply(definitions("a"))
        wanted = definitions("a", generation=9)
        raised = "rises from 0 to 9"
        assert raised in (await client.plan(wanted)).warnings[0]
        assert raised in (await client.apply(wanted)).warnings[0]
        assert (await client.apply(wanted)).warnings == []
        assert (await client.apply(definitions("a"))).stale
        assert await application(world) == ("files", 9, "operator/ada")


class TestRename:
    """A rename moves everything that an application owns to the new name."""

    async def test_code_under_the_new_name_keeps_the_manifests(self, world, client):
        await world.declare(app_with("a", generation=3))
        before = await world.rows("SELECT * FROM scheduler.manifest ORDER BY id")
        history = await world.value("SELECT count(*) FROM scheduler.history")
        assert (await client.rename_app("billing", "invoices", key="k")).text.startswith("billing")
        again = await client.rename_app("billing", "invoices", key="k")
        assert "renamed to invoices" in again.text, "the same key does it once"
        after = await world.rows("SELECT * FROM scheduler.manifest ORDER BY id")
        assert {row["owner"] for row in after} == {"invoices"}
        assert [{**row, "owner": ""} for row in after] == [{**row, "owner": ""} for row in before]
        assert await application(world, "invoices") == ("code", 3, "app/billing")
        applied = await world.declare(app_with("a", owner="invoices", generation=3))
        assert (applied.unchanged, applied.pruned, applied.warnings) == (2, [], [])
        [job] = await world.rows("SELECT owner, declared_by, retired_at FROM scheduler.job")
        assert tuple(job) == ("invoices", ["invoices"], None)
        groups = await world.rows(
            "SELECT owner, declared FROM scheduler.manifest_group WHERE name = 'ops'"
        )
        assert [tuple(row) for row in groups] == [
            ("invoices", {"max_active": {"value": 3, "app": "invoices"}})
        ]
        assert await world.value("SELECT count(*) FROM scheduler.history") == history + 2
        assert await audited(world, "renamed") == [
            ("billing", "operator/ada"),
            ("invoices", "operator/ada"),
        ]
        with pytest.raises(NotFound, match=r"it was renamed to 'invoices' at .* by ada"):
            await client.rename_app("billing", "invoices")

    async def test_statements_about_groups_move_and_can_be_withdrawn(self, world, client):
        await world.declare(app_with("a"))
        other = App("crm")
        other.group("ops", priority=7)
        await world.declare(other)
        stated = (
            "SELECT declared, max_active, priority FROM scheduler.manifest_group WHERE name = 'ops'"
        )
        await client.rename_app("billing", "invoices")
        [row] = await world.rows(stated)
        both = {
            "max_active": {"value": 3, "app": "invoices"},
            "priority": {"value": 7, "app": "crm"},
        }
        assert tuple(row) == (both, 3, 7)
        without = App("invoices")
        without.job("job", group="ops")(lambda ctx: None)
        without.schedule("a", job="job", when=every(hours=1))
        await world.declare(without)
        [row] = await world.rows(stated)
        assert tuple(row) == ({"priority": {"value": 7, "app": "crm"}}, None, 7)

    async def test_a_name_that_is_taken_or_unknown_is_refused(self, world, client):
        await world.declare(app_with("a"))
        await world.declare(App("crm"))
        with pytest.raises(Rejected, match="application 'crm' exists already: retire it"):
            await client.rename_app("billing", "crm")
        with pytest.raises(NotFound, match="there is no application 'bilding'"):
            await client.rename_app("bilding", "invoices")
        with pytest.raises(Rejected, match="'api' is no application"):
            await client.rename_app("api", "invoices")
        with pytest.raises(Rejected, match="cannot be renamed to 'api'"):
            await client.rename_app("billing", "api")
        assert await application(world) == ("code", 0, "app/billing")


class TestRetire:
    """Retiring an application removes everything that it owns."""

    async def test_its_manifests_are_pruned_and_its_jobs_retired(self, timeline):
        await timeline.declare(app_with("a", "b"))
        await timeline.declare(app_with("c", owner="crm", job="other"))
        answer = await timeline.do(
            applications.retire, RetireAppRequest(app="billing", actor="ada")
        )
        assert "3 manifests will be deleted" in answer.text
        assert (await timeline.tick(hours=2)).fired == 2, "only manifests of the other application"
        await timeline.confirm_prunes()
        rows = await timeline.rows("SELECT DISTINCT owner FROM scheduler.manifest")
        assert [row["owner"] for row in rows] == ["crm"]
        rows = await timeline.rows("SELECT name FROM scheduler.application")
        assert [row["name"] for row in rows] == ["crm"]
        rows = await timeline.rows("SELECT name FROM scheduler.job WHERE retired_at IS NOT NULL")
        assert [row["name"] for row in rows] == ["job"]
        changes_of_job = [
            change for change in await timeline.outbox(JobChanged) if change.job == "job"
        ]
        assert changes_of_job[-1].retired
        with pytest.raises(NotFound, match=r"it was retired at .* by ada"):
            await timeline.do(applications.retire, RetireAppRequest(app="billing"))
        again = await timeline.declare(app_with("a", "b"))
        assert again.created == ["a", "b", "job-many-x"], "code declares it again at its start"

    async def test_its_statements_about_groups_end_with_it(self, timeline):
        mine, other = App("billing"), App("crm")
        mine.group("ops", max_active=3, enabled=False)
        mine.group("alone", max_active=1)
        other.group("ops", priority=7)
        other.job("other", group="ops")(lambda ctx: None)
        other.schedule("c", job="other", when=every(hours=1))
        await timeline.declare(mine)
        await timeline.declare(other)
        assert (await timeline.tick(hours=2)).fired == 0, "its group is disabled"
        await timeline.do(applications.retire, RetireAppRequest(app="billing", actor="ada"))
        rows = await timeline.rows(
            "SELECT name, declared, max_active, enabled, priority FROM scheduler.manifest_group"
        )
        assert [tuple(row) for row in rows] == [
            ("ops", {"priority": {"value": 7, "app": "crm"}}, None, True, 7)
        ]
        groups = {change.group: change for change in await timeline.outbox(GroupChanged)}
        assert groups["alone"].deleted
        assert (groups["ops"].max_active, groups["ops"].enabled) == (None, True)
        rows = await timeline.rows(
            "SELECT source FROM scheduler.history WHERE type = 'headway.group.changed.v1'"
            " AND subject = 'ops' ORDER BY id"
        )
        assert rows[-1]["source"] == "operator/ada"
        assert (await timeline.tick(hours=3)).fired == 1, "its group is enabled again"

    async def test_other_manifests_of_its_jobs_are_held(self, timeline, world, client):
        await timeline.declare(app_with("a"))
        await client.schedule("made", job="job", when=every(hours=1))
        await client.retire_app("billing")
        [row] = await timeline.rows(
            "SELECT external_id, wake_at FROM scheduler.manifest WHERE pruning_at IS NULL"
        )
        assert tuple(row) == ("made", None)
        with pytest.raises(NotFound):
            await timeline.do(changes.delete, DeleteRequest(manifest="a"))
