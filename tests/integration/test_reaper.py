"""The reaper: orphans, unclaimed orders, and a dispatcher that was cut off."""

import asyncio

import pytest
from headway import App, retry
from headway_contract import subjects
from headway_dispatcher.runs.reaper import Reaper
from headway_dispatcher.settings import DispatcherSettings
from headway_jetstream_kit.provisioning import stream_info
from headway_jetstream_kit.publish import publish
from support.cadences import when_made_due
from support.invariants import check_invariants
from support.work_events import queue
from support.world import until


class SilentWorker:
    """A worker whose heartbeats the test can stop while its body runs on."""

    def __init__(self, worker) -> None:
        self.worker = worker

    def fall_silent(self) -> None:
        async def no_beat() -> None:
            return None

        self.worker.heartbeats.beat = no_beat
        self.worker._free = 0


@pytest.fixture
def app():
    return App("test")


async def test_an_orphan_is_reaped_and_tried_again_and_the_zombie_is_fenced_off(world, app):
    release = asyncio.Event()
    attempts = []

    @app.job("job")
    @when_made_due()
    @retry(attempts=3)
    async def job(ctx):
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            await release.wait()
        return f"attempt {ctx.attempt}"

    await world.dispatcher(heartbeat_seconds=0.5, orphan_timeout_seconds=2)
    zombie = await world.worker(app, worker_name="zombie")
    await world.until("SELECT count(*) FROM dispatcher.worker")
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    SilentWorker(zombie).fall_silent()
    await world.worker(app, worker_name="healthy")
    await world.until_settled()
    release.set()
    rows = await world.rows("SELECT * FROM dispatcher.run ORDER BY created_at")
    assert [(row["state"], row["worker"], row["attempt"]) for row in rows] == [
        ("failed", "zombie", 1),
        ("completed", "healthy", 2),
    ]
    assert rows[0]["failure"]["kind"] == "orphaned"
    await world.stop_workers()
    again = await world.rows("SELECT state, output FROM dispatcher.run ORDER BY created_at")
    assert [(row["state"], row["output"]) for row in again] == [
        ("failed", None),
        ("completed", "attempt 2"),
    ]
    await check_invariants(world.database)


async def test_an_unclaimed_order_is_withdrawn_and_its_work_waits_again(world, app):
    @app.job("job")
    @when_made_due()
    @retry(attempts=1)
    async def job(ctx): ...

    await world.dispatcher(
        heartbeat_seconds=0.5, orphan_timeout_seconds=2, stale_pending_seconds=1.5
    )
    worker = await world.worker(app)
    await world.until("SELECT count(*) FROM dispatcher.worker")
    worker._free = 0  # it advertises slots but takes no order
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'failed'")
    failure = await world.value("SELECT failure FROM dispatcher.run WHERE state = 'failed' LIMIT 1")
    assert failure["kind"] == "undelivered"
    worker._free = 10
    worker._slot_freed.set()
    await world.until_settled()
    assert await world.value("SELECT attempts FROM dispatcher.work_queue") == 1
    runs = await stream_info(world.broker, subjects.RUNS_STREAM)
    assert runs["state"]["messages"] == 0, "no order is left to claim"
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_a_silent_worker_that_published_past_the_fence_is_reaped_too(world, app):
    """A broken chain of events must not keep a lease alive for ever."""
    stuck = asyncio.Event()

    @app.job("job")
    @when_made_due()
    @retry(attempts=2)
    async def job(ctx):
        if ctx.attempt == 1:
            await stuck.wait()

    await world.dispatcher(heartbeat_seconds=0.5, orphan_timeout_seconds=2)
    rude = await world.worker(app, worker_name="rude")
    await world.until("SELECT count(*) FROM dispatcher.worker")
    await world.fire(app)
    lease = await world.until("SELECT id FROM dispatcher.lease WHERE claimed_by = 'rude'")
    await publish(world.broker, subjects.event(lease, "rude"), b"no event at all")
    SilentWorker(rude).fall_silent()
    await world.worker(app, worker_name="healthy")
    await world.until_settled()
    stuck.set()
    assert await world.value("SELECT outcome FROM dispatcher.work_queue") == "completed"
    await check_invariants(world.database, rejected=1)


async def test_a_dispatcher_that_was_cut_off_reaps_no_lease(world, app):
    """Silence proves nothing while the dispatcher could not receive heartbeats."""

    @app.job("job")
    @when_made_due()
    async def job(ctx):
        await asyncio.Event().wait()

    dispatcher = await world.dispatcher(heartbeat_seconds=0.2, orphan_timeout_seconds=600)
    await world.worker(app, drain_seconds=0.1)
    await world.until("SELECT count(*) FROM dispatcher.worker")
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await dispatcher.stop()
    world.services.remove(dispatcher)
    await world.value("UPDATE dispatcher.lease SET last_heard_at = last_heard_at - interval '1 h'")
    settings = DispatcherSettings(
        database_url="", nats_url="", heartbeat_seconds=0.2, orphan_timeout_seconds=60
    )
    reaper = Reaper(world.database, world.broker, settings, name="deaf")
    assert not (await reaper.run_once()).trusted, "no heartbeat arrived"
    await world.value(
        "INSERT INTO dispatcher.witness VALUES ('deaf', clock_timestamp() - interval '30 s',"
        " clock_timestamp())"
    )
    assert not (await reaper.run_once()).trusted, "not heard for as long as the orphan timeout"
    await world.value(
        "UPDATE dispatcher.witness SET heard_since = clock_timestamp() - interval '1 h',"
        " last_heard_at = clock_timestamp() - interval '10 s'"
    )
    assert not (await reaper.run_once()).trusted, "not heard lately"
    await world.value("UPDATE dispatcher.witness SET last_heard_at = clock_timestamp()")
    result = await reaper.run_once()
    assert (result.trusted, result.silent, result.revoked) == (True, 1, 1)


async def test_a_lagging_projector_does_not_let_a_finished_run_be_killed(world, app):
    release = asyncio.Event()

    @app.job("job")
    @when_made_due()
    async def job(ctx):
        await release.wait()
        return "done"

    dispatcher = await world.dispatcher(heartbeat_seconds=0.2, orphan_timeout_seconds=600)
    await world.worker(app)
    await world.until("SELECT count(*) FROM dispatcher.worker")
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await dispatcher.stop()
    world.services.remove(dispatcher)
    before = (await stream_info(world.broker, subjects.EVENTS_STREAM))["state"]["last_seq"]
    release.set()

    async def outcome_stored():
        info = await stream_info(world.broker, subjects.EVENTS_STREAM)
        return info["state"]["last_seq"] > before

    await until(outcome_stored, within=10, what="the outcome is stored")
    await world.value("UPDATE dispatcher.lease SET last_heard_at = last_heard_at - interval '1 h'")
    await world.value(
        "INSERT INTO dispatcher.witness VALUES ('me', clock_timestamp() - interval '1 h',"
        " clock_timestamp())"
    )
    settings = DispatcherSettings(
        database_url="", nats_url="", heartbeat_seconds=0.2, orphan_timeout_seconds=60
    )
    result = await Reaper(world.database, world.broker, settings, name="me").run_once()
    assert (result.silent, result.revoked) == (1, 0)
    await world.dispatcher()
    await world.until_settled()
    assert await world.value("SELECT output FROM dispatcher.run") == "done"
    await check_invariants(world.database)


async def test_an_order_waits_its_turn_while_all_who_serve_its_job_are_busy(world, app):
    release = asyncio.Event()

    @app.job("job")
    async def job(ctx):
        await release.wait()

    await world.serve(app, worker_slots=1)
    await queue(world)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await queue(world)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'pending'")
    await world.value(
        "INSERT INTO dispatcher.witness VALUES ('me', clock_timestamp() - interval '1 h',"
        " clock_timestamp())"
    )
    settings = DispatcherSettings(
        database_url="", nats_url="", heartbeat_seconds=60, stale_pending_seconds=0.001
    )
    knows = Reaper(world.database, world.broker, settings, name="me")
    assert (await knows.run_once()).silent == 0, "the only worker is busy"
    await world.value(
        "INSERT INTO dispatcher.worker (name, nonce, host, sdk, sdk_version, jobs, slots,"
        " draining, first_heard_at, last_heard_at)"
        " VALUES ('idle', 'n', '', '', '', '{job}', 1, false, now(), now())"
    )
    assert (await knows.run_once()).silent == 0, (
        "the worker with a new free slot may still claim it"
    )
    fresh = Reaper(world.database, world.broker, settings, name="me")
    assert (await fresh.run_once()).reasons == {"undelivered": 1}, (
        "a worker with a free slot did not claim it"
    )
    await world.value("DELETE FROM dispatcher.worker WHERE name = 'idle'")
    release.set()
    await world.until("SELECT bool_and(state = 'settled') FROM dispatcher.work_queue")
    runs = await world.rows("SELECT failure ->> 'kind' FROM dispatcher.run ORDER BY failure")
    assert [run[0] for run in runs] == ["undelivered", None, None]


@pytest.mark.thorough
async def test_a_long_run_makes_no_failed_runs_of_the_next_work(world, app):
    release = asyncio.Event()

    @app.job("job")
    async def job(ctx):
        await release.wait()

    await world.dispatcher(orphan_timeout_seconds=1, stale_pending_seconds=0.2)
    await world.worker(app, worker_slots=1)
    await queue(world)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await queue(world)
    # The reaper runs every second, and first receives its own heartbeats for a second.
    await world.until(
        "SELECT created_at < clock_timestamp() - interval '2.5 s' FROM dispatcher.lease"
        " WHERE claimed_by IS NULL"
    )
    release.set()
    await world.until("SELECT bool_and(state = 'settled') FROM dispatcher.work_queue")
    states = await world.rows("SELECT state FROM dispatcher.run")
    assert [row["state"] for row in states] == ["completed", "completed"]
