"""Ownership of settings: operators own single fields; code releases settings it omits."""

import pytest
from headway import App, every, retry
from headway_contract.work import stored_retry


def app_with(name: str = "billing", *, policy=None, manifest: str | None = "a", **group) -> App:
    """Return an application with a manifest in the group "ops" and some settings of it."""
    app = App(name)
    job = app.job(f"job-{name}", group="ops")(lambda ctx: None)
    if manifest:
        app.schedule(manifest, job=job, when=every(minutes=5), retry=policy)
    if group:
        app.group("ops", **group)
    return app


async def group_of(timeline) -> tuple:
    [row] = await timeline.rows(
        "SELECT max_active, priority, enabled, rate FROM scheduler.manifest_group"
    )
    return tuple(row)


class TestGroups:
    async def test_a_setting_that_code_no_longer_states_returns_to_its_default(self, timeline):
        stated = {"max_active": 3, "priority": 7, "enabled": False, "rate": "5/minute"}
        await timeline.declare(app_with(**stated))
        assert (await timeline.tick(minutes=10)).fired == 0
        applied = await timeline.declare(app_with())
        assert await group_of(timeline) == (None, 0, True, None)
        assert [warning.partition("changes: ")[2] for warning in applied.warnings] == [
            "max_active from 3 to None: no code states it any more",
            "priority from 7 to 0: no code states it any more",
            "enabled from False to True: no code states it any more",
            "rate from 5/minute to None: no code states it any more",
        ]
        assert (await timeline.tick(minutes=15)).fired == 1
        assert await timeline.ledger("a") == [
            ("5-10", "skipped", "group_disabled"),
            ("15", "queued", None),
        ]
        assert (await timeline.declare(app_with())).warnings == [], "warned once"

    async def test_an_operators_field_stays_and_only_that(self, timeline):
        await timeline.declare(app_with(max_active=3, priority=7))
        await timeline.change_group("ops", max_active=2, actor="me")
        await timeline.declare(app_with())
        assert await group_of(timeline) == (2, 0, True, None)
        await timeline.change_group("ops", give_back=["max_active"])
        assert await group_of(timeline) == (None, 0, True, None)

    async def test_an_application_gives_up_only_its_own_statements(self, timeline):
        await timeline.declare(app_with(max_active=3))
        await timeline.declare(app_with("crm", manifest="b", priority=7))
        await timeline.declare(app_with("crm", manifest="b"))
        assert await group_of(timeline) == (3, 0, True, None)
        await timeline.declare(app_with(manifest=None))
        assert await group_of(timeline) == (None, 0, True, None), "it no longer names the group"


async def test_a_plan_shows_which_group_settings_return_to_their_default(world, client):
    await world.scheduler_of_files(app_with(max_active=3, enabled=False), tick="off")
    await client.change_group("ops", max_active=4)
    planned = await client.plan(app_with().definitions())
    applied = await client.apply(app_with().definitions())
    [group] = await client.groups()
    warning = (
        "group 'ops', which has 1 manifest, changes: enabled from False to True: "
        "no code states it any more"
    )
    assert planned.warnings == applied.warnings == [warning]
    assert [(owner.field, owner.value, owner.owner, owner.give_back) for owner in group.owners] == [
        ("max_active", 4, "operator", "headway group ops --give-back max-active"),
        ("priority", 0, "default", ""),
        ("enabled", True, "default", ""),
        ("rate", None, "default", ""),
    ]


FIRST = retry(attempts=3, interval=60, backoff=2, retry_on=["Timeout"])
LATER = retry(attempts=5, interval=20, backoff=4, abort_on=["Fatal"])


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"attempts": 9}, {"attempts": 9}),
        ({"interval_seconds": 7.0}, {"interval_seconds": 7.0}),
        ({"jitter_seconds": 5.0}, {}),
        (
            {"attempts": 9, "interval_seconds": 7.0},
            {"attempts": 9, "interval_seconds": 7.0},
        ),
    ],
    ids=["attempts", "interval", "neither", "both"],
)
async def test_an_operator_owns_single_fields_of_the_retry_policy(timeline, change, kept):
    await timeline.declare(app_with(policy=FIRST))
    await timeline.change("a", **change)
    applied = await timeline.declare(app_with(policy=LATER))
    wanted = app_with(policy=LATER).definitions().manifests[0].retry
    stored = stored_retry((await timeline.manifest("a"))["terms"]["retry"])
    code = {
        "attempts": 5,
        "interval_seconds": 20.0,
        "backoff": 4.0,
        "retry_on": [],
        "abort_on": ["Fatal"],
    }
    assert (wanted.backoff, list(wanted.abort_on)) == (4.0, ["Fatal"])
    assert {name: stored[name] for name in code} == code | kept
    warnings = [warning for warning in applied.warnings if "as an operator set it" in warning]
    assert len(warnings) == len(change)
    for name in kept:
        field = name.removesuffix("_seconds")
        assert any(f"--give-back {field}'" in warning for warning in warnings)


async def test_a_field_is_given_back_alone(timeline):
    await timeline.declare(app_with(policy=FIRST))
    await timeline.change("a", attempts=9, interval_seconds=7)
    await timeline.change("a", give_back=["attempts"])
    await timeline.declare(app_with(policy=LATER))
    row = await timeline.manifest("a")
    assert (row["terms"]["retry"]["attempts"], row["terms"]["retry"]["interval_seconds"]) == (5, 7)
    assert row["operator_fields"] == ["interval"]
    await timeline.change("a", give_back=["retry"])
    await timeline.declare(app_with(policy=LATER))
    assert (await timeline.manifest("a"))["terms"]["retry"]["interval_seconds"] == 20


async def test_a_manifest_shows_the_owner_of_each_field_and_how_to_give_it_back(world, client):
    await world.scheduler(app_with(policy=FIRST), tick="off")
    await client.change("a", attempts=9)
    found = await client.manifest("a")
    planned = await client.plan(app_with(policy=LATER).definitions())
    owners = {
        owner.field: (owner.value, owner.owner, owner.application, owner.give_back)
        for owner in found.owners
    }
    assert owners == {
        "enabled": (True, "code", "billing", ""),
        "attempts": (9, "operator", "", "headway change a --give-back attempts"),
        "interval": (60.0, "code", "billing", ""),
        "jitter": (0.0, "code", "billing", ""),
    }
    assert planned.warnings == [
        "manifest 'a': attempts stays 9 as an operator set it, and the code says 5: to let the "
        "code decide, run 'headway change a --give-back attempts'"
    ]
