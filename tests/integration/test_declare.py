"""Declaring: an upsert that does not write unchanged definitions."""

from datetime import UTC, datetime

import pytest
from headway import App, InvalidDefinitions, cron, daily, every
from headway.define.definitions import Definitions
from headway_contract.definitions import ApplyAnswer
from headway_postgres_kit import DATABASE_CLOCK
from headway_scheduler.declare import checks
from headway_scheduler.declare.startup import apply

pytestmark = pytest.mark.thorough


def app_with(*names: str, when=None, owner: str = "billing", max_active: int | None = None) -> App:
    app = App(owner)
    app.job("job", group="ops")(lambda ctx: None)
    app.group("ops", max_active=max_active)
    for name in names:
        app.schedule(name, job="job", when=when or every(hours=1))
    return app


async def declare(world, app: App | Definitions, policy="delete") -> ApplyAnswer:
    definitions = app if isinstance(app, Definitions) else app.definitions()
    return await apply(world.database, definitions, policy=policy)


async def manifests(world) -> dict:
    rows = await world.rows("SELECT * FROM scheduler.manifest WHERE pruning_at IS NULL")
    return {row["external_id"]: row for row in rows}


async def test_an_unchanged_definition_writes_nothing(world):
    app = app_with("a", "b")
    assert (await declare(world, app)).created == ["a", "b"]
    before = await manifests(world)
    history = await world.value("SELECT count(*) FROM scheduler.history")
    again = await declare(world, app)
    assert (again.created, again.changed, again.unchanged) == ([], [], 2)
    assert await manifests(world) == before
    assert await world.value("SELECT count(*) FROM scheduler.history") == history == 2


async def test_a_changed_cadence_moves_the_next_due_time_and_keeps_the_rest(world):
    await declare(world, app_with("a"))
    await world.value(
        "UPDATE scheduler.manifest SET success_number = 7, enabled = false,"
        " disabled_by = 'operator', operator_fields = '{enabled}'"
    )
    changed = app_with("a", when=cron("15 3 * * *", tz="Europe/Berlin"))
    assert (await declare(world, changed)).moved == ["a"]
    row = (await manifests(world))["a"]
    assert (row["success_number"], row["enabled"]) == (7, False)
    local = await world.value(
        "SELECT (next_due_at AT TIME ZONE 'Europe/Berlin')::time::text FROM scheduler.manifest"
    )
    assert local == "03:15:00"


async def test_a_change_without_a_new_timing_keeps_the_next_due_time(world):
    app = app_with()
    app.schedule("a", job="job", when=every(hours=1))
    await declare(world, app)
    due = (await manifests(world))["a"]["next_due_at"]
    other = app_with()
    other.schedule("a", job="job", when=every(hours=1), priority=9)
    assert (await declare(world, other)).changed == ["a"]
    row = (await manifests(world))["a"]
    assert (row["terms"]["priority"], row["next_due_at"], row["wake_at"]) == (9, due, due)


async def test_two_applications_do_not_touch_each_other(world):
    await declare(world, app_with("a"))
    assert (await declare(world, app_with("b", owner="crm"))).created == ["b"]
    assert set(await manifests(world)) == {"a", "b"}
    with pytest.raises(InvalidDefinitions, match="'a' belongs to the application 'billing'"):
        await declare(world, app_with("a", "c", owner="crm"))
    assert set(await manifests(world)) == {"a", "b"}, "all of it or none"


async def test_an_app_that_merely_uses_a_group_leaves_its_priority_alone(world):
    first, other = App("billing"), app_with("b", owner="crm")
    first.job("job", group="ops")(lambda ctx: None)
    first.schedule("a", job="job", when=every(hours=1))
    first.group("ops", priority=5)
    await declare(world, first)
    await declare(world, other)
    assert await world.value("SELECT priority FROM scheduler.manifest_group") == 5


async def test_limits_get_a_new_version_only_when_they_change(world):
    versions = []
    for limit in (2, 2, 3, None):
        await declare(world, app_with("a", max_active=limit))
        versions.append(await world.value("SELECT version FROM scheduler.manifest_group"))
    assert versions[0] == versions[1] < versions[2] < versions[3]
    published = await world.value(
        "SELECT count(*) FROM scheduler.outbox WHERE message_id LIKE 'group.%'"
    )
    assert published == 4, "published at every declaration, in case it was lost"
    assert await world.value("SELECT max_active IS NULL FROM scheduler.manifest_group")


async def test_ten_thousand_manifests_are_declared_together(world):
    app = app_with(*(f"m-{number}" for number in range(10_000)))
    assert len((await declare(world, app)).created) == 10_000


async def test_a_timing_that_never_fires_from_now_on_is_refused_when_it_is_new(world):
    # 29 February was a Thursday in 2024, and will be again in 2052.
    never = cron("0 0 29 2 *", days="thu")
    with pytest.raises(InvalidDefinitions, match=r"manifest 'a': cron 0 0 29 2 \* never fires"):
        await declare(world, app_with("a", when=never))
    await declare(world, app_with("a"))
    with pytest.raises(InvalidDefinitions, match="never fires"):
        await declare(world, app_with("a", when=never))
    assert set(await manifests(world)) == {"a"}


async def test_a_shared_timing_is_checked_once(world, monkeypatch):
    checked = []

    def problems(timing, *, since):
        checked.append(timing)
        return []

    definitions = app_with("a", "b", "c").definitions()
    monkeypatch.setattr(checks.timing, "problems", problems)
    await declare(world, definitions)
    assert len(checked) == 1


async def test_a_declared_timing_that_has_ended_does_not_stop_a_start(world):
    class Then:
        async def now(self, connection):
            return datetime(2023, 12, 1, tzinfo=UTC)

    app = app_with("a", when=cron("0 0 29 2 *", days="thu"))
    world.database.clock = Then()
    await declare(world, app)
    world.database.clock = DATABASE_CLOCK
    assert (await declare(world, app)).unchanged == 1
    app_again = app_with("b", when=every(hours=1))
    app_again.schedule("a", job="job", when=cron("0 0 29 2 *", days="thu"), priority=3)
    assert (await declare(world, app_again)).changed == ["a"]


async def test_the_audit_keeps_the_previous_definition(world):
    def stated(**options) -> App:
        app = App("test")
        app.job("job")(lambda ctx, number=None: None)
        app.schedule("a", job="job", **{"when": daily("03:00"), "input": 1, **options})
        return app

    await world.declare(stated())
    await world.value(
        "UPDATE scheduler.manifest SET operator_fields = '{jitter}', jitter_seconds = 77"
    )
    changed = stated(when=daily("04:00", tz="Europe/Berlin"), priority=3, jitter=10)
    await world.declare(changed)
    await world.declare(changed)
    await world.declare(stated())
    rows = await world.rows(
        "SELECT data FROM scheduler.history WHERE type = 'headway.manifest.declared.v1' ORDER BY id"
    )
    first, second, third = (dict(row["data"]) for row in rows)
    assert "before" not in first
    differ = [
        {name for name in after.keys() | was.keys() if after.get(name) != was.get(name)}
        for after, was in ((data, data.pop("before")) for data in (second, third))
    ]
    assert differ == [{"timing", "priority"}] * 2, "not the jitter, which the operator owns"
