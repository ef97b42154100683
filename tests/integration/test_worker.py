"""The worker: limits, draining, and its behaviour without contact."""

import asyncio
import threading

import pytest
from headway import App, Fatal
from headway_clock import monotonic, utc_now
from headway_contract.work import RetryPolicy
from headway_contract.worker_protocol import HeartbeatReply
from headway_service_kit.service import Service
from support.invariants import check_invariants
from support.tiers import first_in_each_tier
from support.work_events import app_with, cancel, queue, until_given_back, until_run
from support.world import until


async def test_a_job_never_runs_more_at_once_than_it_allows_here(world):
    app = App("test")
    running = {"narrow": 0, "wide": 0}
    most = dict(running)
    release = asyncio.Event()

    def body(name):
        async def job(ctx):
            running[name] += 1
            most[name] = max(most[name], running[name])
            await release.wait()
            running[name] -= 1

        return job

    app.job("narrow", group="ops", worker_concurrency=2)(body("narrow"))
    app.job("wide", group="ops")(body("wide"))
    await world.serve(app, worker_slots=6)
    for _ in range(6):
        await queue(world, job="narrow")
    await world.until(
        "SELECT count(*) = 2 FROM dispatcher.run WHERE job = 'narrow' AND state = 'in_progress'"
    )
    # The gate orders no more runs than the worker takes, and one spare.
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 3
    for _ in range(4):
        await queue(world, job="wide")
    await world.until(
        "SELECT count(*) FROM dispatcher.run WHERE job = 'wide' AND state = 'in_progress'"
    )
    release.set()
    await world.until("SELECT count(*) = 10 FROM dispatcher.run WHERE state = 'completed'")
    assert most["narrow"] == 2
    await check_invariants(world.database)


@pytest.mark.parametrize("ending", first_in_each_tier(["deaf", "polite", "raising"]))
async def test_a_plain_function_is_handed_back_at_the_drain_s_deadline(world, ending):
    begun, release = threading.Event(), threading.Event()

    def job(ctx):
        if begun.is_set():
            return "second"
        begun.set()
        while not (release.is_set() if ending == "deaf" else ctx.cancelled):
            release.wait(0.01)
        if ending == "raising":
            raise RuntimeError("interrupted")
        return "half done"

    app = app_with(job)
    await world.serve(app, drain_seconds=0.1)
    await queue(world, cancel_grace_seconds=30)
    await until_run(world, "in_progress")
    began = monotonic()
    await world.stop_workers()
    assert monotonic() - began < 10
    release.set()
    row = await until_run(world, "failed")
    assert row["failure"]["kind"] == "worker_stopped"
    await world.worker(app)
    row = await until_run(world, "completed")
    assert (row["output"], row["attempt"]) == ("second", 1), (
        "not counted, so it is the first attempt again"
    )
    await check_invariants(world.database)


@pytest.mark.parametrize("stop_reason", first_in_each_tier(["cancelled", "timed_out"]))
async def test_a_run_that_is_already_stopping_has_no_longer_than_the_drain(world, stop_reason):
    release, heard = threading.Event(), threading.Event()

    def job(ctx):
        while not release.is_set():
            release.wait(0.01)
            if ctx.cancelled:
                heard.set()

    await world.dispatcher(orphan_timeout_seconds=60)
    await world.worker(app_with(job), drain_seconds=0.1)
    timeout = 0.2 if stop_reason == "timed_out" else 60
    work = await queue(world, cancel_grace_seconds=60, timeout_seconds=timeout)
    await until_run(world, "in_progress")
    if stop_reason == "cancelled":
        await cancel(world, work)
    await asyncio.to_thread(heard.wait, 20)
    began = monotonic()
    await world.stop_workers()
    assert monotonic() - began < 10
    release.set()
    if stop_reason == "cancelled":
        await until_run(world, "cancelled")
        assert await world.value("SELECT outcome FROM dispatcher.work_queue") == "cancelled"
    else:
        assert (await until_run(world, "failed"))["failure"]["kind"] == "timed_out"
    await check_invariants(world.database)


@pytest.mark.parametrize("policy", first_in_each_tier(["stop", "continue"]))
async def test_when_contact_is_lost_the_job_decides(world, policy):
    release, ended = asyncio.Event(), []

    async def job(ctx):
        try:
            await release.wait()
            ended.append("completed")
        except asyncio.CancelledError:
            ended.append("stopped")
            raise

    await world.dispatcher(orphan_timeout_seconds=1.0)
    worker = await world.worker(app_with(job))
    await queue(world, on_lost_contact=policy, retry=RetryPolicy(attempts=1))
    await until_run(world, "in_progress")
    for service in world.services:
        await service.stop()
    world.services.clear()
    silent = worker.heartbeats.silence

    async def long_enough():
        return silent() > 1.5

    await until(long_enough, within=20, what="no reply for the orphan timeout")
    if policy == "stop":

        async def stopped():
            return ended == ["stopped"]

        await until(stopped, within=10, what="the body was stopped")
    assert ended == (["stopped"] if policy == "stop" else [])
    release.set()
    await world.dispatcher(orphan_timeout_seconds=60)
    if policy == "stop":
        row = await until_run(world, "failed")
        assert row["failure"]["kind"] == "lost_contact"
        await until_run(world, "completed")
        assert await world.value("SELECT attempts FROM dispatcher.work_queue") == 1
    else:
        await until_run(world, "completed")
        assert await world.value("SELECT count(*) FROM dispatcher.run") == 1
    await check_invariants(world.database)


@pytest.mark.thorough
async def test_a_worker_without_contact_claims_nothing_that_it_would_have_to_stop(world):
    """Otherwise it would begin one body after the other and stop each at the next heartbeat."""
    begun, mended = [], asyncio.Event()

    async def job(ctx):
        begun.append(ctx.work)
        await mended.wait()

    await world.dispatcher(orphan_timeout_seconds=1.0)
    await world.worker(app_with(job), worker_slots=1)
    for _ in range(2):
        await queue(world, retry=RetryPolicy(attempts=1))
    await world.until("SELECT count(*) = 2 FROM dispatcher.run")
    await until_run(world, "in_progress")
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    [dispatcher] = world.services
    await dispatcher.stop()
    world.services.clear()
    await until_given_back(world, "job")
    assert len(begun) == 1, "the other order is still available to a worker with contact"
    mended.set()
    await world.dispatcher(orphan_timeout_seconds=60)
    await world.until(
        "SELECT count(*) = 2 FROM dispatcher.work_queue WHERE outcome = 'completed' AND attempts = 1"
    )
    assert len(begun) == 3
    await check_invariants(world.database)


@pytest.mark.parametrize("way", ["push", "heartbeat"])
@pytest.mark.parametrize("kind", first_in_each_tier(["async", "plain"]))
async def test_a_cancel_is_heard_by_push_or_else_by_heartbeat(world, way, kind, monkeypatch):
    """Test each way alone: no other message reaches the worker before the test times out."""
    if way == "push":
        monkeypatch.setitem(Service.keep.__kwdefaults__, "poll", 3600.0)
    heard = threading.Event()

    def plain(ctx):
        while not ctx.cancelled:
            heard.wait(0.005)
        heard.set()

    async def waits(ctx):
        try:
            await asyncio.Event().wait()
        finally:
            heard.set()

    # With push, no heartbeat and no pass is due for a minute; with heartbeat, no push arrives.
    seconds = 60.0 if way == "push" else 0.3
    await world.dispatcher(heartbeat_seconds=seconds, orphan_timeout_seconds=300)
    app = app_with(plain if kind == "plain" else waits)
    worker = await world.worker(app, heartbeat_seconds=seconds)
    if way == "heartbeat":
        obey = worker.heartbeats.obey
        # A heartbeat reply is a CancelPush too, so keep the replies instead of dropping pushes.
        worker.heartbeats.obey = lambda got: obey(got) if isinstance(got, HeartbeatReply) else None
    work = await queue(world, retry=RetryPolicy(attempts=3))
    await until_run(world, "in_progress")
    await cancel(world, work)
    row = await until_run(world, "cancelled", within=10)
    assert heard.is_set()
    assert row["cancel_reason"] == "asked"
    await world.until("SELECT outcome = 'cancelled' FROM dispatcher.work_queue")
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 1, "never tried again"
    await check_invariants(world.database)


class Special(ConnectionError):
    pass


FAILURES = [
    ({"retry_on": ("OSError",)}, Special("base class"), 2, "attempts_exhausted"),
    ({"retry_on": ("OSError",)}, ValueError("other"), 1, "kind_not_retried"),
    ({"abort_on": ("ConnectionError",)}, Special("base class"), 1, "kind_not_retried"),
    ({"abort_on": ("Special",)}, OSError("more general"), 2, "attempts_exhausted"),
    ({"retry_on": ("Fatal",)}, Fatal("no use"), 1, "not_retryable"),
]


async def test_kinds_of_failure_decide_whether_it_is_tried_again(world):
    async def job(ctx, number: int):
        raise FAILURES[number][1]

    await world.serve(app_with(job))
    for number, (policy, _, runs, reason) in enumerate(FAILURES):
        given = RetryPolicy(attempts=2, interval_seconds=0.05, **policy)
        work = await queue(world, retry=given, input=number)
        await world.until("SELECT count(*) FROM dispatcher.dead_letter WHERE work_id = $1", work)
        assert await world.rows(
            "SELECT reason, (SELECT count(*) FROM dispatcher.run WHERE work_id = $1) AS runs"
            " FROM dispatcher.dead_letter WHERE work_id = $1",
            work,
        ) == [(reason, runs)]
    await check_invariants(world.database)


async def test_the_next_attempt_waits_in_the_queue_where_it_can_be_seen(world):
    async def job(ctx):
        raise ValueError("boom")

    await world.serve(app_with(job))
    await queue(world, retry=RetryPolicy(attempts=2, interval_seconds=600, jitter=0))
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'waiting'")
    row = (await world.rows("SELECT * FROM dispatcher.work_queue"))[0]
    assert (row["wait_reason"], row["attempts"]) == ("retry", 1)
    assert 590 < (row["not_before"] - utc_now()).total_seconds() <= 600
