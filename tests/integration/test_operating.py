"""Operator requests: changes of many manifests, draining workers, settings."""

import asyncio

import pytest
from headway import App
from headway_contract import subjects
from headway_contract.operations import SettingsAnswer, SettingsQuestion
from headway_errors import NotFound, RequestFailed
from headway_jetstream_kit.ask import ask
from headway_scheduler.operate import desk
from support.cadences import when_made_due


def app_of(may_end: asyncio.Event) -> App:
    app = App("test")

    @app.job("slow")
    async def slow(ctx):
        await may_end.wait()

    app.schedule("slow-1", job=slow, when=when_made_due())
    app.schedule("slow-2", job=slow, when=when_made_due())
    return app


async def test_a_worker_that_is_asked_to_drain_finishes_and_ends(world, client):
    may_end = asyncio.Event()
    app = app_of(may_end)
    await world.dispatcher(heartbeat_seconds=0.3)
    await world.declare(app)
    await world.scheduler(app)
    worker = await world.worker(app, worker_name="w1")
    await client.trigger("slow-1")
    await world.until("SELECT started_at IS NOT NULL FROM dispatcher.run")

    [draining, unknown] = await client.drain("w1", "nobody")
    assert (draining.worker, draining.result) == ("w1", "asked")
    assert (unknown.result, unknown.last_heard_at) == ("unknown", None)
    assert "there is no worker nobody" in unknown.text
    [again] = await client.drain("w1")
    assert again.result == "already_draining"
    assert (await client.workers())[0].draining
    async with asyncio.timeout(10):
        while not worker.draining:
            await asyncio.sleep(0.01)
    await client.trigger("slow-2")
    await world.until("SELECT reason = 'no_worker' FROM dispatcher.waiting")

    may_end.set()
    await world.until("SELECT count(*) = 0 FROM dispatcher.worker")
    await world.until("SELECT state = 'completed' FROM dispatcher.run")
    rows = await world.rows(
        "SELECT subject, source FROM dispatcher.history WHERE type LIKE '%drain_asked%'"
    )
    assert [(row["subject"], row["source"]) for row in rows] == [("w1", "operator/ada")]


async def test_a_later_worker_of_the_same_name_does_not_drain(world, client):
    app = app_of(asyncio.Event())
    await world.dispatcher()
    await world.declare(app)
    await world.worker(app, worker_name="w1")
    await world.until("SELECT count(*) = 1 FROM dispatcher.worker")
    await client.drain("w1")
    await world.until("SELECT count(*) = 0 FROM dispatcher.worker")
    fresh = await world.worker(app, worker_name="w1")
    await world.until("SELECT NOT draining FROM dispatcher.worker")
    assert not fresh.draining


async def test_a_process_that_takes_the_name_of_one_that_drains_gets_orders(world, client):
    """As after a crash: the row of the previous process still exists."""
    app = app_of(asyncio.Event())
    await world.dispatcher()
    await world.declare(app)
    await world.value(
        "INSERT INTO dispatcher.worker (name, nonce, host, sdk, sdk_version, code_version, jobs,"
        " slots, draining, first_heard_at, last_heard_at, drain_nonce) VALUES ('w1', 'before',"
        " '', '', '', '', '{slow}', 1, true, now(), now(), 'before')"
    )
    fresh = await world.worker(app, worker_name="w1")
    await world.until("SELECT nonce <> 'before' AND NOT draining FROM dispatcher.worker")
    assert not fresh.draining


async def test_many_manifests_are_changed_by_one_request_with_a_result_for_each(world, client):
    app = app_of(asyncio.Event())
    await world.declare(app)
    await world.scheduler(app)
    first, gone, second = await client.change_many("slow-1", "gone", "slow-2", action="disable")
    assert (first.done, second.done) == (True, True)
    assert first.text == "slow-1: disabled"
    assert not gone.done
    assert "there is no manifest 'gone'" in gone.text
    assert not await world.value("SELECT bool_or(enabled) FROM scheduler.manifest")
    enabled = await client.change_many("slow-1", "slow-2", action="enable")
    assert all(result.done for result in enabled)
    assert await world.value("SELECT bool_and(enabled) FROM scheduler.manifest")


async def test_the_same_key_runs_many_only_once(world, client):
    app = app_of(asyncio.Event())
    await world.declare(app)
    await world.scheduler(app)
    first, again = [
        await client.change_many("slow-1", "slow-2", action="run", key="once") for _ in range(2)
    ]
    assert first == again
    assert all(result.done for result in first)
    assert await world.value("SELECT count(*) FROM scheduler.work") == 2
    with pytest.raises(RequestFailed, match="other parameters"):
        await client.change_many("slow-1", action="run", key="once")


async def test_manifests_of_a_group_are_changed_page_by_page(world, client, monkeypatch):
    monkeypatch.setattr(desk, "_MOST_CHANGED", 1)
    app = app_of(asyncio.Event())
    app.schedule("other", job="slow", group="elsewhere", when=when_made_due(), labels={"a": "b"})
    await world.scheduler(app)
    meant = await client.change_many(group="slow", action="disable", dry_run=True)
    assert [result.manifest for result in meant] == ["slow-1", "slow-2"]
    assert await world.value("SELECT bool_and(enabled) FROM scheduler.manifest")
    done = await client.change_many(group="slow", action="disable")
    assert [(result.manifest, result.done) for result in done] == [
        ("slow-1", True),
        ("slow-2", True),
    ]
    assert await world.value("SELECT external_id FROM scheduler.manifest WHERE enabled") == "other"
    first, again = [
        await client.change_many(everything=True, action="run", key="all") for _ in range(2)
    ]
    assert first == again
    assert [result.manifest for result in first] == ["other", "slow-1", "slow-2"]
    assert await world.value("SELECT count(*) FROM scheduler.work") == 3
    labelled = await client.change_many(labels={"a": "b"}, action="disable")
    assert [result.manifest for result in labelled] == ["other"]
    for wrong in ({"group": "slow", "labels": {"a": "b"}}, {"group": "nobodys"}):
        with pytest.raises(RequestFailed, match=r"in one way|no manifest matches"):
            await client.change_many(**wrong, action="enable")


async def test_a_worker_serves_only_the_jobs_that_are_named(world, client):
    app = app_of(asyncio.Event())

    @app.job("quick")
    async def quick(ctx): ...

    app.schedule("quick-1", job=quick, when=when_made_due())
    await world.dispatcher()
    await world.scheduler(app)
    await world.worker(app, worker_name="w1", only=["quick"])
    await client.change_many("slow-1", "quick-1", action="run")
    await world.until("SELECT count(*) = 1 FROM dispatcher.run WHERE state = 'completed'")
    assert [worker.jobs for worker in await client.workers()] == [["quick"]]
    await world.until("SELECT reason = 'no_worker' FROM dispatcher.waiting")


async def test_a_change_without_a_selection_is_refused(world, client):
    await world.scheduler(app_of(asyncio.Event()))
    with pytest.raises(RequestFailed):
        await client.change_many(action="enable")


@pytest.mark.parametrize(
    ("subject", "setting"),
    [
        (subjects.SCHEDULER_SETTINGS_QUESTION, "HEADWAY_TICK"),
        (subjects.DISPATCHER_SETTINGS_QUESTION, "HEADWAY_GATE_BATCH"),
    ],
)
async def test_services_report_their_settings_without_secrets(world, subject, setting):
    await world.dispatcher()
    await world.scheduler(app_of(asyncio.Event()))
    answer = await ask(world.broker, subject, SettingsQuestion(), SettingsAnswer, timeout=5)
    found = {setting.variable: setting for setting in answer.settings}
    assert (found[setting].source, bool(found[setting].description)) == ("default", True)
    password = world.database_url.partition("://")[2].partition("@")[0].partition(":")[2]
    assert password
    assert password not in found["HEADWAY_DATABASE_URL"].value
    assert answer.process


async def test_a_missing_service_is_reported(world, client):
    with pytest.raises(RequestFailed) as raised:
        await client.drain("w1")
    assert not isinstance(raised.value, NotFound)
