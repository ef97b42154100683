"""Cancels: work in any state ends early, once, and is not retried."""

import asyncio
import threading
from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.settled import WorkSettled
from headway_contract.work import RetryPolicy, WorkBroughtForward
from headway_contract.worker_protocol import CancelPush
from headway_jetstream_kit.provisioning import stream_info
from support.invariants import check_invariants
from support.tiers import first_in_each_tier
from support.work_events import WorkPublisher, app_with
from support.world import until


class Scheduler(WorkPublisher):
    """Publishes work and cancels, and waits for their end."""

    def __init__(self, world) -> None:
        super().__init__(world.broker)
        self.world = world

    async def settled(self, work: UUID) -> list[WorkSettled]:
        """Return every settled event of a work in the stream."""
        return [data for data in await self.events(WorkSettled) if data.work == work]

    async def until_settled(self, work: UUID) -> WorkSettled:
        async def published():
            return await self.settled(work)

        [settled] = await until(published, within=20, what=f"work {work} is published as settled")
        row = (await self.world.rows("SELECT * FROM dispatcher.work_queue WHERE id = $1", work))[0]
        assert (row["state"], row["outcome"]) == ("settled", settled.outcome)
        return settled


@pytest.fixture
def scheduler(world) -> Scheduler:
    return Scheduler(world)


@pytest.mark.parametrize("times", [1, 3])
async def test_waiting_work_is_settled_at_once_and_published_once(world, scheduler, times):
    await world.dispatcher()
    work = await scheduler.queue()
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'queued'")
    for _ in range(times):
        await scheduler.cancel(work, reason="not needed")
    settled = await scheduler.until_settled(work)
    assert (settled.outcome, settled.reason, settled.runs) == ("cancelled", "not needed", 0)
    await scheduler.until_taken_in()
    assert len(await scheduler.settled(work)) == 1
    assert await world.value("SELECT cancel_reason FROM dispatcher.work_queue") == "not needed"
    await check_invariants(world.database)


async def test_work_that_waits_for_its_retry_is_settled_and_never_runs_again(world, scheduler):
    async def job(ctx):
        raise ValueError("boom")

    await world.serve(app_with(job))
    work = await scheduler.queue(retry=RetryPolicy(attempts=3, interval_seconds=3600))
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'waiting'")
    await scheduler.cancel(work)
    settled = await scheduler.until_settled(work)
    assert (settled.outcome, settled.runs, settled.attempts) == ("cancelled", 1, 1)
    await check_invariants(world.database)


async def test_a_cancel_that_comes_before_its_work_stays(world, scheduler):
    await world.dispatcher()
    work, manifest = uuid4(), uuid4()
    await scheduler.cancel(work, manifest_id=manifest, manifest="m", reason="early")
    assert (await scheduler.until_settled(work)).reason == "early"
    for _ in range(2):
        await scheduler.queue(work=work, manifest_id=manifest, manifest="m")
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE job = 'job'")
    await scheduler.until_taken_in()
    row = (await world.rows("SELECT * FROM dispatcher.work_queue"))[0]
    assert (row["state"], row["outcome"], row["cause"]) == ("settled", "cancelled", f"test:{work}")
    assert len(await scheduler.settled(work)) == 1
    assert await world.value("SELECT count(*) FROM dispatcher.rejected") == 0


async def test_a_cancel_of_an_older_round_does_nothing(world, scheduler):
    await world.dispatcher()
    work = await scheduler.queue(round=2)
    await scheduler.cancel(work, round=1)
    await scheduler.until_taken_in()
    row = (await world.rows("SELECT * FROM dispatcher.work_queue"))[0]
    assert (row["state"], row["cancel_requested_at"]) == ("queued", None)
    await scheduler.cancel(work, round=2)
    assert (await scheduler.until_settled(work)).round == 2


async def test_a_long_async_body_is_stopped(world, scheduler):
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def job(ctx):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    await world.serve(app_with(job))
    work = await scheduler.queue()
    await asyncio.wait_for(begun.wait(), 15)
    await scheduler.cancel(work, reason="enough")
    settled = await scheduler.until_settled(work)
    assert (settled.outcome, settled.reason, settled.attempts) == ("cancelled", "enough", 1)
    assert stopped.is_set()
    row = (await world.rows("SELECT state, cancel_reason FROM dispatcher.run"))[0]
    assert (row["state"], row["cancel_reason"]) == ("cancelled", "enough")
    await check_invariants(world.database)


@pytest.mark.parametrize("stops", first_in_each_tier([True, False]), ids=["stops", "ignores-it"])
async def test_a_plain_function_is_asked_to_stop_and_abandoned_after_its_grace(
    world, scheduler, stops
):
    begun, release = threading.Event(), threading.Event()

    def job(ctx):
        begun.set()
        while not (ctx.cancelled if stops else release.is_set()):
            release.wait(0.01)

    await world.serve(app_with(job, cancel_grace=0.3))
    work = await scheduler.queue(cancel_grace_seconds=0.3)

    async def has_begun():
        return begun.is_set()

    await until(has_begun, within=15, what="the body has begun")
    await scheduler.cancel(work)
    assert (await scheduler.until_settled(work)).outcome == "cancelled"
    release.set()
    await check_invariants(world.database)


async def test_an_unclaimed_order_is_withdrawn(world, scheduler):
    async def job(ctx): ...

    await world.dispatcher()
    await world.beat("idle", slots=5)
    work = await scheduler.queue()
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'dispatched'")
    await scheduler.cancel(work)
    settled = await scheduler.until_settled(work)
    assert (settled.outcome, settled.runs, settled.attempts) == ("cancelled", 1, 0)

    async def withdrawn():
        info = await stream_info(world.broker, subjects.RUNS_STREAM)
        return info["state"]["messages"] == 0

    await until(withdrawn, within=10, what="nothing is left that could be claimed")
    await check_invariants(world.database)


async def test_a_cancel_is_pushed_and_repeated_in_every_heartbeat_reply(world, scheduler):
    """Every heartbeat reply repeats the cancel to a worker that ignores it."""
    release = asyncio.Event()

    async def job(ctx):
        try:
            await release.wait()
        except asyncio.CancelledError:
            await release.wait()

    await world.dispatcher(orphan_timeout_seconds=60)
    worker = await world.worker(app_with(job), worker_name="w1")
    pushed: asyncio.Queue[CancelPush] = asyncio.Queue()

    async def on_push(message):
        pushed.put_nowait(msgspec.json.decode(message.data, type=CancelPush))

    await world.broker.client.subscribe(subjects.cancel("w1"), cb=on_push)
    work = await scheduler.queue()
    run = await world.until("SELECT run_id FROM dispatcher.run WHERE state = 'in_progress'")
    lease = await world.value("SELECT id FROM dispatcher.lease")
    await scheduler.cancel(work, reason="stop it")
    push = await asyncio.wait_for(pushed.get(), 10)
    assert [(item.run, item.lease, item.reason) for item in push.cancel] == [
        (run, lease, "stop it")
    ]
    for _ in range(3):
        reply = await world.beat("w1", nonce=worker.nonce, slots=5, leases=[lease])
        assert [(item.run, item.reason) for item in reply.cancel] == [(run, "stop it")]
    assert (await world.beat("w1", nonce="another-process")).cancel == []
    release.set()
    assert (await scheduler.until_settled(work)).outcome == "cancelled"
    assert (await world.beat("w1", nonce=worker.nonce)).cancel == []


async def test_a_run_that_fails_after_the_request_is_not_tried_again(world, scheduler):
    fail = asyncio.Event()

    async def job(ctx):
        await fail.wait()
        raise ValueError("boom")

    worker = await world.serve(app_with(job))
    worker._obey = worker.heartbeats.obey = lambda instructions: None
    work = await scheduler.queue()
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await scheduler.cancel(work, reason="too late")
    await world.until(
        "SELECT count(*) FROM dispatcher.work_queue WHERE cancel_requested_at IS NOT NULL"
    )
    fail.set()
    settled = await scheduler.until_settled(work)
    assert (settled.outcome, settled.reason, settled.attempts) == ("cancelled", "too late", 1)
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 1
    await check_invariants(world.database)


async def test_a_run_that_completes_after_the_request_is_completed(world, scheduler):
    go_on = asyncio.Event()

    async def job(ctx):
        await go_on.wait()
        return "done"

    worker = await world.serve(app_with(job))
    worker._obey = worker.heartbeats.obey = lambda instructions: None
    work = await scheduler.queue()
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await scheduler.cancel(work)
    await scheduler.until_taken_in()
    go_on.set()
    assert (await scheduler.until_settled(work)).outcome == "completed"
    await scheduler.cancel(work)
    await scheduler.until_taken_in()
    assert len(await scheduler.settled(work)) == 1


async def test_cancels_race_with_the_gate_and_everything_settles_once(world, scheduler):
    async def job(ctx):
        await asyncio.sleep(0)

    await world.dispatcher()
    await world.serve(app_with(job), worker_slots=20)
    works = [uuid4() for _ in range(60)]
    orders = [scheduler.queue(work=work) for work in works] + [
        scheduler.cancel(work) for work in works
    ]
    await asyncio.gather(*orders)
    await world.until(
        "SELECT count(*) FILTER (WHERE state = 'settled') = 60 FROM dispatcher.work_queue"
    )
    await world.until("SELECT NOT EXISTS (SELECT FROM dispatcher.outbox)")
    rows = await world.rows("SELECT id, outcome FROM dispatcher.work_queue")
    for row in rows[:10]:
        [settled] = await scheduler.settled(row["id"])
        assert settled.outcome == row["outcome"]
    assert await world.value("SELECT count(*) FROM dispatcher.work_queue WHERE job = ''") == 0
    await check_invariants(world.database)


async def test_work_that_is_brought_forward_runs_first_and_at_once(world, scheduler):
    order = []

    async def job(ctx):
        order.append(ctx.work)

    await world.dispatcher(max_active=1)
    old, delayed, urgent = uuid4(), uuid4(), uuid4()
    hours_ago = utc_now() - timedelta(hours=5)
    await scheduler.queue(work=old, queued_at=hours_ago)
    await scheduler.queue(work=urgent, not_before=utc_now() + timedelta(days=1))
    await scheduler.queue(work=delayed, not_before=utc_now() + timedelta(days=1))
    await scheduler.until_taken_in()
    for _ in range(2):
        await scheduler.publish(WorkBroughtForward(work=urgent, group="ops", at=utc_now()))
    await scheduler.publish(WorkBroughtForward(work=uuid4(), group="ops", at=utc_now()))
    await scheduler.until_taken_in()
    await world.worker(app_with(job))
    await scheduler.until_settled(urgent)
    await scheduler.until_settled(old)
    assert order == [urgent, old]
    await scheduler.publish(WorkBroughtForward(work=urgent, group="ops", at=utc_now()))
    await scheduler.until_taken_in()
    states = dict(
        [tuple(row) for row in await world.rows("SELECT id, state FROM dispatcher.work_queue")]
    )
    assert states == {old: "settled", urgent: "settled", delayed: "queued"}
    await check_invariants(world.database)
