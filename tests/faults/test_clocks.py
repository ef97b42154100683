"""Clocks that are wrong or step back: nothing becomes poison, nothing fires twice."""

from datetime import datetime, timedelta
from uuid import uuid4

import msgspec
import pytest
from headway import App, every
from headway_clock import utc_now
from headway_contract import Event, decode, encode, event, subjects
from headway_contract.control import Heartbeat
from headway_contract.lifecycle import LeaseClaimed, RunCompleted, RunFailed, RunStarted
from headway_dispatcher.projector import event_intake
from headway_jetstream_kit import Puller, Stored
from headway_jetstream_kit.provisioning import consumer_info
from headway_jetstream_kit.publishing import publish
from headway_postgres_kit import DATABASE_CLOCK, Connection
from headway_relay import Handover
from headway_scheduler.tick import Tick
from headway_service_kit.passes import Wakeup
from support.cadences import when_made_due
from support.invariants import check_invariants


class SkewedClock:
    """PostgreSQL's clock, and how far it has been moved."""

    def __init__(self) -> None:
        self.moved = timedelta(0)

    async def now(self, connection: Connection) -> datetime:
        return await DATABASE_CLOCK.now(connection) + self.moved


@pytest.fixture
async def order(world):
    """An order that a worker has taken, with no dispatcher that projects."""
    app = App("test")
    app.job("job")(lambda ctx: None)
    app.schedule("m", job="job", when=when_made_due())
    dispatcher = await world.dispatcher(orphan_timeout_seconds=600)
    beat = Heartbeat(worker="w1", nonce="n1", jobs=["job"], slots=1)
    await world.broker.client.request(subjects.HEARTBEAT, msgspec.json.encode(beat), timeout=5)
    scheduler = await world.fire(app)
    puller = Puller(world.broker, subjects.RUNS_STREAM, subjects.worker_consumer("job"))
    [message] = await puller.fetch(1, wait=15)
    for service in (scheduler, dispatcher):
        world.services.remove(service)
        await service.stop()
    [found] = decode(message.body)
    assert isinstance(found, Event)
    return found.data


async def tell(world, order, kind, *, at: datetime, **fields) -> None:
    data = kind(lease=order.lease, token=order.token, nonce="n1", **fields)
    body = encode(event(data, id=uuid4(), source="worker/w1", subject="x", time=at))
    answer = await publish(world.broker, subjects.event(order.lease, "w1"), body)
    assert isinstance(answer, Stored)


async def project(world, clock) -> None:
    intake = event_intake(
        world.database,
        world.broker,
        clock=clock,
        gate=Wakeup(),
        relay=Handover(),
        prunes=Wakeup(),
    )
    # On a busy machine what was told may come in several batches.
    is_through = False
    while not is_through:
        await intake.run_once()
        await world.broker.client.flush()
        info = await consumer_info(world.broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER)
        is_through = not (info["num_pending"] or info["num_ack_pending"])
    await intake._puller.close()


@pytest.mark.parametrize("skew", [timedelta(hours=-1), timedelta(hours=1), timedelta(days=-9000)])
async def test_a_worker_whose_clock_is_wrong(world, order, skew):
    """Its times are information; they are put between the order and now."""
    run = order.runs[0].run
    await tell(world, order, LeaseClaimed, at=utc_now() + skew, host="here")
    await tell(world, order, RunStarted, at=utc_now() + skew, run=run)
    await tell(world, order, RunCompleted, at=utc_now() - skew, run=run)
    await project(world, DATABASE_CLOCK)
    [row] = await world.rows("SELECT *, clock_timestamp() AS now FROM dispatcher.metadata")
    assert row["state"] == "completed"
    assert row["created_at"] <= row["started_at"] <= row["now"]
    assert row["created_at"] <= row["finished_at"] <= row["now"]
    await check_invariants(world.database)


@pytest.mark.parametrize("outcome", ["completed", "failed"])
async def test_the_dispatchers_clock_steps_back_in_the_middle_of_a_run(world, order, outcome):
    run = order.runs[0].run
    clock = SkewedClock()
    await tell(world, order, LeaseClaimed, at=utc_now(), host="here")
    await tell(world, order, RunStarted, at=utc_now(), run=run)
    await project(world, clock)
    clock.moved = timedelta(hours=-1)
    if outcome == "completed":
        await tell(world, order, RunCompleted, at=utc_now(), run=run)
    else:
        await tell(world, order, RunFailed, at=utc_now(), run=run, failure={"kind": "Oops"})
    await project(world, clock)
    assert await world.value("SELECT state FROM dispatcher.metadata") == outcome
    await check_invariants(world.database)


@pytest.mark.breaks_tables("ends work by hand")
async def test_the_schedulers_clock_steps_back_and_nothing_fires_twice(world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    for number in range(5):
        app.schedule(f"m{number}", job="job", when=every(minutes=1))
    await world.declare(app)
    await world.make_due()
    clock = SkewedClock()
    tick = Tick(world.database, holder="me", max_entries=None, relay=Handover(), clock=clock)
    assert (await tick.run_once()).fired == 5
    await world.value("DELETE FROM scheduler.work")
    for moved in (-3600, -30, 0):
        clock.moved = timedelta(seconds=moved)
        assert (await tick.run_once()).fired == 0
    fired = await world.rows(
        "SELECT manifest_id, cause, count(*) FROM scheduler.occurrence GROUP BY 1, 2"
    )
    assert {row["count"] for row in fired} == {1}
