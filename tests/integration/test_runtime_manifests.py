"""Manifests created at run time: terms of their job, and parents of any owner."""

import pytest
from headway import App, daily, every, manual, retry
from headway.yaml_file import load_manifest
from headway_errors import Invalid
from support.invariants import check_invariants

TERMS = (
    "SELECT group_name, labels, terms, terms -> 'retry' ->> 'attempts' AS attempts"
    " FROM scheduler.manifest WHERE external_id = $1"
)


def app_with(given=1, **terms) -> App:
    app = App("shop")

    @app.job("sync", **terms)
    @retry(attempts=7)
    async def sync(ctx, number): ...

    app.schedule("nightly", job="sync", when=manual(), input=given)
    return app


STATED = {
    "group": "ops",
    "priority": 4,
    "timeout": 33,
    "cancel_grace": 3,
    "on_lost_contact": "continue",
    "on_dead_letter": "go_on",
    "concurrency_key": "customer:{input}",
    "concurrency_limit": 2,
    "start_within": 900,
    "labels": {"team": "data", "tier": "1"},
}


async def terms_of(world, external_id: str) -> dict:
    [row] = await world.rows(TERMS, external_id)
    terms = {name: value for name, value in row["terms"].items() if name != "retry"}
    return {**terms, **{name: row[name] for name in ("group_name", "labels", "attempts")}}


async def test_unstated_terms_are_those_of_the_job(world, client):
    await world.scheduler(app_with(**STATED), tick="off")
    await client.schedule("plain", job="sync", when=daily("03:15"), input=2)
    await client.schedule(
        "own", job="sync", when=manual(), input=3, timeout=5, group="mine",
        labels={"tier": "2"}, retry=retry(attempts=1),
    )  # fmt: skip
    await client.schedule_many("many", job="sync", items={"a": 1}, when=every(minutes=5))
    of_code = await terms_of(world, "nightly")
    assert of_code["labels"] == {"team": "data", "tier": "1"}
    assert await terms_of(world, "plain") == of_code
    assert await terms_of(world, "many-a") == {**of_code, "group_name": "many"}
    assert await terms_of(world, "own") == {
        **of_code,
        "timeout_seconds": 5,
        "group_name": "mine",
        "attempts": "1",
        "labels": {"team": "data", "tier": "2"},
    }
    again = await client.schedule("plain", job="sync", when=daily("03:15"), input=2)
    assert (again.created, again.changed, again.unchanged) == ([], [], 1)
    # The group with the job's name was not used, so it was not created.
    assert {group.name for group in await client.groups()} == {"ops", "mine", "many"}


async def test_they_follow_their_job_when_it_is_declared_differently(world, client):
    await world.scheduler_of_files(app_with(**STATED), tick="off")
    await client.schedule("plain", job="sync", when=manual(), input=2, timeout=5)
    await client.schedule("after", job="sync", depends_on="plain", input=2)
    changed = app_with(group="elsewhere", timeout=44, labels={"team": "ops"})
    assert (await client.plan(changed.definitions())).changed == ["after", "nightly", "plain"]
    assert (await client.apply(changed.definitions())).changed == ["after", "nightly", "plain"]
    of_code = await terms_of(world, "nightly")
    assert (of_code["group_name"], of_code["timeout_seconds"]) == ("elsewhere", 44)
    assert of_code["labels"] == {"team": "ops"}
    assert await terms_of(world, "after") == of_code
    assert await terms_of(world, "plain") == {**of_code, "timeout_seconds": 5}
    assert (await client.manifest("after")).status.depends_on == "plain"
    again = await client.apply(changed.definitions())
    assert (again.changed, again.unchanged) == ([], 1)


async def test_the_key_of_the_job_must_fit_the_input(world, client):
    await world.scheduler(app_with({"id": 1}, concurrency_key="customer:{input.id}"), tick="off")
    with pytest.raises(Invalid, match=r"manifest 'x': .*concurrency_key"):
        await client.schedule("x", job="sync", when=manual(), input=2)


async def test_a_dependent_made_at_run_time_follows_a_parent_of_any_owner(world, client, nats_url):
    app = App("shop")

    @app.job("load", group="ops")
    async def load(ctx):
        ctx.activate("asleep", key="k")

    @app.job("mail", group="mails")
    async def mail(ctx):
        return ctx.manifest

    app.schedule("load", job=load, when=manual())
    await world.serve(app)
    await world.scheduler(app)
    await client.schedule("mine", job="mail", depends_on="load")
    await client.schedule("after-mine", job="mail", depends_on="mine")
    await client.schedule("asleep", job="mail", depends_on="load", dormant=True)
    # A second request with another priority keeps the link to the parent.
    await client.schedule("after-mine", job="mail", depends_on="mine", priority=9)
    await client.trigger("load")
    await world.until_settled(at_least=4)
    ran = await world.rows("SELECT manifest, group_name FROM dispatcher.work_queue")
    assert {tuple(row) for row in ran} == {
        ("load", "ops"),
        ("mine", "mails"),
        ("after-mine", "mails"),
        ("asleep", "mails"),
    }
    await check_invariants(world.database)


async def test_invalid_parents_are_refused_by_name(world, client):
    await world.scheduler(app_with(), tick="off")
    with pytest.raises(Invalid, match="'x' depends on 'nobody', which does not exist"):
        await client.schedule("x", job="sync", depends_on="nobody", input=1)
    await client.schedule("a", job="sync", depends_on="nightly", input=1)
    await client.schedule("b", job="sync", depends_on="a", input=1)
    with pytest.raises(Invalid, match=r"in a circle: .*(a → b|b → a)"):
        await client.schedule("a", job="sync", depends_on="b", input=1)
    with pytest.raises(Exception, match="it has both a cadence and a parent"):
        await client.schedule("c", job="sync", when=manual(), depends_on="a", input=1)
    with pytest.raises(Exception, match=r"it is dormant and has no parent"):
        await client.schedule("c", job="sync", when=manual(), dormant=True, input=1)


async def test_a_manifest_in_file_syntax_is_the_same_over_http(world, client, console):
    app = app_with(**STATED)
    await world.scheduler(app, tick="off")
    record = {"job": "sync", "depends_on": "nightly", "dormant": True, "input": 5}
    async with console.signed_in("admin") as http:
        put = await http.put("/api/v1/manifests/mine", json=record)
        assert (put.status_code, put.json()["created"]) == (200, ["mine"])
        for parent, message in (
            ("nobody", "'nobody', which does not exist"),
            ("mine", "mine → mine"),
        ):
            wrong = await http.put("/api/v1/manifests/mine", json={**record, "depends_on": parent})
            assert wrong.status_code == 422
            assert message in wrong.text
    sent = await client.apply(load_manifest("mine", record))
    assert sent.unchanged == 1
    found = await client.manifest("mine")
    assert (found.status.depends_on, found.status.dormant) == ("nightly", True)
    assert "timeout_seconds" in found.sent["inherited"]
    assert await terms_of(world, "mine") == await terms_of(world, "nightly")
