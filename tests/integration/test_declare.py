"""Declaring: an upsert that leaves alone what has not changed."""

import pytest
from headway import App, InvalidDefinitions, cron, every
from headway_scheduler.declare import Declared, declare


def app_with(*names: str, when=None, owner: str = "billing", max_active: int | None = None) -> App:
    app = App(owner)
    app.job("job", group="ops")(lambda ctx: None)
    app.group("ops", max_active=max_active)
    for name in names:
        app.schedule(name, job="job", when=when or every(hours=1))
    return app


async def manifests(world) -> dict:
    return {row["external_id"]: row for row in await world.rows("SELECT * FROM scheduler.manifest")}


async def test_an_unchanged_definition_writes_nothing(world):
    definitions = app_with("a", "b").definitions()
    assert await declare(world.database, definitions) == Declared(created=2)
    before = await manifests(world)
    history = await world.value("SELECT count(*) FROM scheduler.history")
    assert await declare(world.database, definitions) == Declared(unchanged=2)
    assert await manifests(world) == before
    assert await world.value("SELECT count(*) FROM scheduler.history") == history == 2


async def test_a_changed_cadence_moves_the_next_due_time_and_keeps_the_rest(world):
    await declare(world.database, app_with("a").definitions())
    await world.value("UPDATE scheduler.manifest SET success_number = 7, enabled = false")
    changed = app_with("a", when=cron("15 3 * * *", tz="Europe/Berlin")).definitions()
    assert await declare(world.database, changed) == Declared(changed=1)
    row = (await manifests(world))["a"]
    assert (row["success_number"], row["enabled"]) == (7, False)
    local = await world.value(
        "SELECT (next_due_at AT TIME ZONE 'Europe/Berlin')::time::text FROM scheduler.manifest"
    )
    assert local == "03:15:00"


async def test_what_is_no_longer_declared_stops_and_comes_back_when_it_is(world):
    await declare(world.database, app_with("a", "b").definitions())
    assert await declare(world.database, app_with("a").definitions()) == Declared(
        unchanged=1, undeclared=1
    )
    assert (await manifests(world))["b"]["undeclared_at"] is not None
    first = (await manifests(world))["b"]["id"]
    assert await declare(world.database, app_with("a", "b").definitions()) == Declared(
        unchanged=1, changed=1
    )
    row = (await manifests(world))["b"]
    assert (row["id"], row["undeclared_at"]) == (first, None)


async def test_two_applications_do_not_touch_each_other(world):
    await declare(world.database, app_with("a").definitions())
    assert await declare(world.database, app_with("b", owner="crm").definitions()) == Declared(
        created=1
    )
    assert (await manifests(world))["a"]["undeclared_at"] is None
    with pytest.raises(InvalidDefinitions, match="'a' belongs to the application 'billing'"):
        await declare(world.database, app_with("a", "c", owner="crm").definitions())
    assert set(await manifests(world)) == {"a", "b"}, "all of it or none"


async def test_an_app_that_merely_uses_a_group_leaves_its_priority_alone(world):
    one, other = app_with("a"), app_with("b", owner="crm")
    one.group("ops", priority=5)
    await declare(world.database, one.definitions())
    await declare(world.database, other.definitions())
    assert await world.value("SELECT priority FROM scheduler.manifest_group") == 5


async def test_limits_get_a_new_version_only_when_they_change(world):
    await declare(world.database, app_with("a", max_active=2).definitions())
    await declare(world.database, app_with("a", max_active=2).definitions())
    await declare(world.database, app_with("a", max_active=3).definitions())
    await declare(world.database, app_with("a", max_active=None).definitions())
    rows = await world.rows(
        "SELECT message_id FROM scheduler.outbox WHERE message_id LIKE 'group.%' ORDER BY id"
    )
    assert [row["message_id"] for row in rows] == [
        "group.ops.1",
        "group.ops.1",
        "group.ops.2",
        "group.ops.2",
    ], "told again at every declaration, under the same version while nothing changes"
    assert await world.value("SELECT max_active FROM scheduler.manifest_group") == 3


async def test_ten_thousand_manifests_are_declared_together(world):
    definitions = app_with(*(f"m-{number}" for number in range(10_000))).definitions()
    assert await declare(world.database, definitions) == Declared(created=10_000)
