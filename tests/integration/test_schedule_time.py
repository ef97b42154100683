"""The dispatcher with a virtual clock: schedule times follow it, liveness does not."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from headway import App
from headway_clock import utc_now
from headway_contract import encode, event, subjects
from headway_contract.work import RetryPolicy, WorkCancelRequested
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.wiring import start_dispatcher
from headway_jetstream_kit import Stored
from headway_jetstream_kit.publish import publish
from support.invariants import check_invariants
from support.works import queued
from support.world import QUICK

pytestmark = pytest.mark.thorough


class VirtualClock:
    """A clock that stands still until the test moves it."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    async def now(self, connection) -> datetime:
        return self.at


@pytest.fixture(params=[2000, 2100], ids=["past", "future"])
def clock(request) -> VirtualClock:
    return VirtualClock(datetime(request.param, 3, 1, 12, tzinfo=UTC))


async def dispatch(world, clock, **settings):
    fields = {
        "database_url": world.database_url,
        "nats_url": world.nats_url,
        "provision": "auto",
        "stream_max_bytes": 64 * 1024**2,
        **QUICK,
        **settings,
    }
    service = await start_dispatcher(DispatcherSettings(**fields), clock=clock)
    world.services.append(service)
    return service


async def publish_event(world, clock, data) -> None:
    body = encode(event(data, id=uuid4(), source="test", subject="x", time=clock.at))
    assert isinstance(await publish(world.broker, subjects.work("ops"), body), Stored)


async def queue(world, clock, **fields) -> UUID:
    work = uuid4()
    given = {"job": "job", "cause": f"test:{work}", "queued_at": clock.at}
    await publish_event(world, clock, queued(work=work, group="ops", **{**given, **fields}))
    return work


def app_with(body) -> App:
    app = App("test")
    app.job("job", group="ops")(body)
    return app


async def test_a_run_s_times_are_schedule_time_and_the_reaper_lets_it_live(world, clock):
    release = asyncio.Event()

    async def job(ctx):
        await release.wait()
        return "done"

    await dispatch(world, clock)
    await world.worker(app_with(job))
    await queue(world, clock)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await world.until(
        "SELECT bool_or(last_heard_at - heard_since > interval '3 s') FROM dispatcher.witness"
    )
    assert await world.value("SELECT state FROM dispatcher.run") == "in_progress"
    created, clock.at = clock.at, clock.at + timedelta(hours=3)
    release.set()
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'")
    row = (await world.rows("SELECT * FROM dispatcher.run"))[0]
    assert row["state"] == "completed"
    assert created == row["created_at"] == row["started_at"]
    assert created <= row["finished_at"] <= clock.at
    assert await world.value("SELECT settled_at FROM dispatcher.work_queue") == clock.at
    lease = (await world.rows("SELECT * FROM dispatcher.lease"))[0]
    for real in (lease["created_at"], lease["last_heard_at"], row["start_heard_at"]):
        assert abs(utc_now() - real) < timedelta(minutes=1)
    await check_invariants(world.database)


async def test_delays_and_retries_wait_for_schedule_time(world, clock):
    async def job(ctx):
        if ctx.attempt == 1:
            raise ValueError("boom")

    service = await dispatch(world, clock)
    await world.worker(app_with(job))
    retry = RetryPolicy(attempts=2, interval_seconds=3600, jitter=0)
    await queue(world, clock, not_before=clock.at + timedelta(days=1), retry=retry)
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'queued'")
    clock.at += timedelta(days=1)
    service.wake("gate")
    not_before = await world.until(
        "SELECT max(not_before) FROM dispatcher.work_queue WHERE state = 'waiting'"
    )
    assert not_before == clock.at + timedelta(hours=1)
    clock.at += timedelta(hours=1)
    service.wake("gate")
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE outcome = 'completed'")
    await check_invariants(world.database)


async def test_an_unclaimed_order_is_withdrawn_after_real_time(world, clock):
    async def job(ctx): ...

    await dispatch(world, clock, orphan_timeout_seconds=1.0, stale_pending_seconds=1.5)
    worker = await world.worker(app_with(job))
    await world.until("SELECT count(*) FROM dispatcher.worker")
    worker._free = 0
    await queue(world, clock)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'failed'")
    worker._free = 10
    worker._slot_freed.set()
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE outcome = 'completed'")
    await check_invariants(world.database)


async def test_a_run_that_does_not_end_is_taken_away_after_real_time(world, clock):
    async def job(ctx):
        await asyncio.Event().wait()

    await dispatch(world, clock)
    await world.worker(app_with(job), drain_seconds=0.1)
    await queue(world, clock, retry=RetryPolicy(attempts=1))
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    await world.value(
        "UPDATE dispatcher.metadata SET start_heard_at = start_heard_at - interval '1 h'"
    )
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled'")
    failure = await world.value("SELECT failure FROM dispatcher.run")
    assert failure["kind"] == "timed_out"
    await check_invariants(world.database)


async def test_a_cancel_works_at_any_time(world, clock):
    begun = asyncio.Event()

    async def job(ctx):
        begun.set()
        await asyncio.Event().wait()

    await dispatch(world, clock)
    await world.worker(app_with(job))
    work = await queue(world, clock)
    await asyncio.wait_for(begun.wait(), 15)
    await publish_event(
        world, clock, WorkCancelRequested(work=work, group="ops", requested_at=clock.at)
    )
    await world.until("SELECT count(*) FROM dispatcher.work_queue WHERE outcome = 'cancelled'")
    assert await world.value("SELECT cancel_requested_at FROM dispatcher.work_queue") == clock.at
    await check_invariants(world.database)


async def test_only_a_pass_that_is_kept_can_be_woken(world):
    service = await world.dispatcher()
    with pytest.raises(KeyError, match="has no pass 'tick'"):
        service.wake("tick")
