"""The client: look and change, over NATS alone."""

import os
from datetime import UTC, datetime, timedelta

import pytest
from headway import App, Client, InvalidDefinitions, Item, cron, daily, every, manual
from headway.client.client import RequestFailed
from headway.define.definitions import Definitions, JobDefinition
from headway_contract import subjects
from headway_contract.scheduling import GroupsAnswer, ManifestsAnswer
from headway_errors import Invalid, Rejected
from support.cadences import when_made_due


def app_with(count: int = 0) -> App:
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)

    @app.job("sync", group="ops")
    async def sync(ctx, number: int): ...

    for number in range(count):
        app.schedule(f"m-{number:04}", job="job", when=when_made_due())
    return app


async def test_manifests_come_in_pages_and_in_order(world, nats_url, monkeypatch):
    monkeypatch.setattr("headway.client.client.PAGE", 10)
    await world.scheduler(app_with(25))
    async with Client(nats_url) as client:
        found = await client.manifests()
    assert [one.external_id for one in found] == [f"m-{number:04}" for number in range(25)]
    assert {(one.owner, one.job, one.group, one.enabled, one.declared) for one in found} == {
        ("test", "job", "ops", True, True)
    }
    assert all(one.next_due_at is not None for one in found)


async def test_what_is_wrong_is_told(world, nats_url):
    async with Client(nats_url) as client:
        with pytest.raises(RequestFailed, match="no service answers"):
            await client.manifests()
    with pytest.raises(RequestFailed, match="not reachable"):
        async with Client("nats://127.0.0.1:1"):
            pass
    with pytest.raises(RequestFailed, match="not connected"):
        await Client(nats_url).manifests()
    await world.scheduler(app_with(1))
    reply = await world.broker.client.request(
        subjects.MANIFESTS_QUESTION, b'{"limit": 0}', timeout=5
    )
    assert reply.headers["Nats-Service-Error-Code"] == "400"


async def test_all_that_is_wrong_with_a_request_is_told_at_once(world, nats_url):
    await world.scheduler(App("test"), tick="off")
    async with Client(nats_url) as client:
        with pytest.raises(Invalid) as refused:
            await client.change("a", attempts=0, jitter=-1)
        assert str(refused.value).splitlines() == [
            "attempts 0 is not valid: use a whole number from 1 to 1000000",
            "jitter_seconds -1 is not valid: use a number of seconds from 0 to 86400",
        ]
        with pytest.raises(Invalid, match=r"^priority 77 is not valid: use a whole number from 0"):
            await client.trigger("a", priority=77)


async def test_code_does_not_take_what_was_made_at_run_time(world, nats_url):
    app = App("test")
    app.job("job")(lambda ctx: None)
    await world.scheduler_of_files(app, tick="off")
    app.schedule("a", job="job", when=manual())
    async with Client(nats_url) as client:
        await client.schedule("a", job="job", when=manual())
        with pytest.raises(Rejected, match=r"'a' was made at run time .* \('headway delete a'\)"):
            await client.apply(app.definitions())


async def test_a_manifest_made_at_run_time_belongs_to_nobodys_code(world, nats_url):
    await world.scheduler_of_files(app_with(1), tick="off")
    async with Client(nats_url, actor="alice") as client:
        made = await client.schedule(
            "sync-x", job="sync", when=daily("03:15", tz="Europe/Berlin"), input=5, priority=3
        )
        assert (made.owner, made.created) == ("api", ["sync-x"])
        again = await client.schedule(
            "sync-x", job="sync", when=daily("03:15", tz="Europe/Berlin"), input=5, priority=3
        )
        assert (again.created, again.changed, again.unchanged) == ([], [], 1)
        changed = await client.schedule("sync-x", job="sync", when=manual(), input=6)
        assert changed.changed == ["sync-x"]
        await client.schedule("sync-y", job="sync", when=manual(), input=7)
        assert (await client.apply(app_with(0).definitions())).pruned == ["m-0000"]
        assert [one.external_id for one in await client.manifests()] == ["sync-x", "sync-y"]
        status = (await client.manifest("sync-x")).status
        assert (status.owner, status.group, status.job) == ("api", "ops", "sync")
        assert "deleted" in (await client.delete("sync-x")).text
        assert [one.external_id for one in await client.manifests()] == ["sync-y"]
    sources = await world.rows(
        "SELECT DISTINCT source FROM scheduler.history WHERE subject = 'sync-x'"
    )
    assert [row["source"] for row in sources] == ["operator/alice"]


async def test_many_at_run_time_and_those_that_left(world, nats_url):
    await world.scheduler(app_with(), tick="off")
    async with Client(nats_url) as client:
        await client.schedule("other", job="sync", when=manual(), input=1)
        made = await client.schedule_many(
            "many", job="sync", items={"a": 1, "b": 2}, when=every(minutes=5)
        )
        assert made.created == ["many-a", "many-b"]
        again = await client.schedule_many(
            "many", job="sync", items=[Item("b", 2), Item("c", 3)], when=every(minutes=5)
        )
        assert (again.created, again.unchanged, again.pruned) == (["many-c"], 1, ["many-a"])
        kept = await client.schedule_many(
            "many", job="sync", items={"d": 4}, when=every(minutes=5), prune=False
        )
        assert kept.pruned == []
        left = [one.external_id for one in await client.manifests()]
    assert left == ["many-b", "many-c", "many-d", "other"]


async def test_bad_definitions_are_refused_here_or_there(world, nats_url):
    await world.scheduler(app_with(), tick="off")
    async with Client(nats_url) as client:
        with pytest.raises(InvalidDefinitions, match="cron expression"):
            await client.schedule("x", job="sync", when=cron("99 * * * *"))
        with pytest.raises(TypeError, match="takes no keyword 'proirity'"):
            await client.schedule("x", job="sync", when=manual(), proirity=1)
        with pytest.raises(RequestFailed, match="does not fit job 'sync'"):
            await client.schedule("x", job="sync", when=manual(), input="text")
        with pytest.raises(RequestFailed, match="'nobody', which nobody declared"):
            await client.schedule("x", job="nobody", when=manual())
        assert await client.manifests() == []


async def test_a_one_shot_runs_once(world, nats_url):
    app = app_with()
    await world.dispatcher()
    await world.worker(app)
    await world.scheduler(app)
    async with Client(nats_url) as client:
        soon = await client.once("sync", input=1, delay=0.2)
        assert soon.startswith("once-")
        later = datetime(2099, 1, 1, 12, tzinfo=UTC)
        assert await client.once("sync", input=2, at=later, id="later") == "later"
        assert (await client.manifest("later")).status.next_due_at == later
        await world.until("SELECT outcome = 'completed' FROM scheduler.occurrence")
        await world.until("SELECT NOT enabled FROM scheduler.manifest WHERE external_id = $1", soon)
        text = (await client.explain(soon)).text
        assert "one-shot that has had its shot" in text
        for wrong in ({}, {"at": later, "delay": 1}, {"at": datetime(2099, 1, 1)}):
            with pytest.raises(ValueError, match="once"):
                await client.once("sync", input=1, **wrong)


async def test_what_operators_do(world, nats_url):
    await world.scheduler(app_with(1), tick="off")
    async with Client(nats_url, actor="bob") as client:
        await client.disable("m-0000")
        assert not (await client.manifest("m-0000")).status.enabled
        await client.enable("m-0000")
        await client.change("m-0000", attempts=7, interval=5, jitter=30)
        found = await client.manifest("m-0000")
        assert (found.definition["retry"]["attempts"], found.touched) == (
            7,
            ["attempts", "enabled", "interval", "jitter"],
        )
        await client.change("m-0000", give_back=["retry", "jitter", "enabled"])
        assert (await client.manifest("m-0000")).touched == []
        await client.change_group("ops", max_active=5, priority=9)
        await client.change_group("ops", max_active=None)
        [group] = await client.groups()
        assert (group.max_active, group.priority, group.touched) == (
            None,
            9,
            ["max_active", "priority"],
        )
        first = await client.trigger("m-0000", key="k")
        assert (first.result, (await client.trigger("m-0000", key="k")).result) == (
            "queued",
            "known",
        )
        assert (await client.trigger("m-0000")).result == "brought_forward"
        for refused in (client.trigger, client.enable, client.delete, client.change):
            with pytest.raises(RequestFailed, match="there is no manifest 'nobody'"):
                await refused("nobody")
        with pytest.raises(RequestFailed, match="there is no group 'nobody'"):
            await client.change_group("nobody", priority=1)
        with pytest.raises(RequestFailed, match="is declared by the application 'test'"):
            await client.delete("m-0000")
    assert (
        await world.value("SELECT count(*) FROM scheduler.history WHERE source = 'operator/bob'")
        == 8
    )


async def test_a_request_that_nats_would_not_take_is_refused_before_it_is_sent(world, nats_url):
    async with Client(nats_url) as client:
        job = JobDefinition(name="big", description=os.urandom(1_000_000).hex())
        with pytest.raises(RequestFailed, match=r"NATS accepts 1048576 at most.*max_payload"):
            await client.apply(Definitions(owner="big", jobs=(job,)))


async def test_anything_that_can_ask_may_take_the_place_of_nats():
    asked = []

    class Recorded:
        async def ask(self, subject, question, answer, *, timeout=5.0):
            asked.append((subject, timeout))
            return answer(**({"owner": "api"} if answer.__name__ == "ApplyAnswer" else {}))

    async with Client(control=Recorded()) as client:
        assert await client.manifests() == ManifestsAnswer().manifests
        assert await client.groups() == GroupsAnswer().groups
        await client.plan(Definitions(owner="x"))
    assert asked == [
        (subjects.MANIFESTS_QUESTION, 5.0),
        (subjects.GROUPS_QUESTION, 5.0),
        (subjects.PLAN_QUESTION, 30.0),
    ]


async def test_the_ledger_is_asked_for_page_by_page(world, nats_url):
    await world.scheduler(app_with(205), tick="off")
    async with Client(nats_url) as client:
        checked = await client.ledger(since=datetime(2020, 1, 1, tzinfo=UTC) + timedelta(1))
    assert (checked.manifests, checked.gaps, checked.last) == (205, [], "m-0204")


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({}, "either at= or delay="),
        ({"at": "2027-01-01 00:00"}, "takes a datetime with its zone"),
        ({"delay": -5}, "between none and ten years"),
        ({"delay": 1e18}, "write a number of seconds|between none and ten years"),
        ({"delay": "soon"}, "write a number of seconds"),
    ],
)
async def test_a_one_shot_at_no_time_is_refused_before_anybody_is_asked(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        await Client("nats://nowhere:1").once("job", **fields)


async def test_times_beyond_all_calendars_are_refused(world, nats_url):
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("hourly", job="job", when=when_made_due())
    await world.scheduler(app)
    async with Client(nats_url) as headway:
        for year in (1, 9999):
            with pytest.raises(RequestFailed, match="is not between 1970 and 2199"):
                await headway.preview("hourly", after=datetime(year, 12, 31, tzinfo=UTC))
