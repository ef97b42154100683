"""Clocks that are wrong or step back: nothing becomes poison, nothing fires twice."""

from datetime import datetime, timedelta, timezone
from uuid import uuid4

import pytest
from headway import App, every
from headway_clock import utc_now
from headway_contract import Event, decode, encode, event, subjects
from headway_contract.lifecycle import LeaseClaimed, RunCompleted, RunFailed, RunStarted
from headway_dispatcher.history.rebuild import rebuild
from headway_dispatcher.history.verify import verify
from headway_dispatcher.runs.projector import event_intake
from headway_dispatcher.wakeups import Wakeups
from headway_jetstream_kit import Stored
from headway_jetstream_kit.provisioning import consumer_info
from headway_jetstream_kit.publish import publish
from headway_postgres_kit import DATABASE_CLOCK, Connection
from headway_relay import Handover
from headway_scheduler.fire.tick import Tick
from support.cadences import when_made_due
from support.invariants import check_invariants
from support.tiers import first_in_each_tier
from support.work_events import order_puller

pytestmark = pytest.mark.thorough


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
    await world.beat("w1", nonce="n1")
    scheduler = await world.fire(app)
    puller = await order_puller(world, "job")
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
    world.database.clock = clock
    intake = event_intake(world.database, world.broker, Wakeups())
    # On a busy machine what was told may come in several batches.
    is_through = False
    while not is_through:
        await intake.run_once()
        await world.broker.client.flush()
        info = await consumer_info(world.broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER)
        is_through = not (info["num_pending"] or info["num_ack_pending"])
    await intake.puller.close()


async def check_times(world):
    """The run's times are in order, history has the same, and a rebuild changes nothing."""
    await check_invariants(world.database)
    [row] = await world.rows("SELECT * FROM dispatcher.run")
    assert row["created_at"] <= row["started_at"] <= row["finished_at"]
    assert (await verify(world.database)).differences == []
    await world.value("UPDATE dispatcher.witness SET last_heard_at = now() - interval '1 h'")
    await world.value("DELETE FROM dispatcher.metadata")
    assert (await rebuild(world.database)).added == {"metadata": 1}
    assert await world.rows("SELECT * FROM dispatcher.run") == [row]
    return row


async def kept(world) -> dict[str, tuple[datetime, str | None]]:
    """The times of the run's events in history: as it counts, and by the worker's clock."""
    rows = await world.rows(
        "SELECT type, occurred_at, (data ->> 'worker_time')::timestamptz AS worker_time"
        " FROM dispatcher.history WHERE type IN ('headway.run.started.v1',"
        " 'headway.run.completed.v1', 'headway.run.failed.v1')"
    )
    return {row["type"].split(".")[2]: (row["occurred_at"], row["worker_time"]) for row in rows}


BEHIND, AHEAD = timedelta(minutes=-40), timedelta(hours=3)


@pytest.mark.parametrize(
    ("start", "end"),
    first_in_each_tier(
        [
            (AHEAD, BEHIND),
            (BEHIND, BEHIND),
            (AHEAD, AHEAD),
            (BEHIND, AHEAD),
            (timedelta(days=-9000), timedelta(days=9000)),
        ]
    ),
)
async def test_a_worker_whose_clock_is_wrong(world, order, start, end):
    """Its times are clamped to the order and now, and kept as they were beside that."""
    run = order.runs[0].run
    started_at, finished_at = utc_now() + start, utc_now() + end
    await tell(world, order, LeaseClaimed, at=started_at, host="here")
    await tell(world, order, RunStarted, at=started_at, run=run)
    await tell(world, order, RunCompleted, at=finished_at, run=run)
    await project(world, DATABASE_CLOCK)
    row = await check_times(world)
    assert row["state"] == "completed"
    assert row["finished_at"] <= await world.value("SELECT clock_timestamp()")
    assert (row["worker_started_at"], row["worker_finished_at"]) == (started_at, finished_at)
    assert await kept(world) == {
        "started": (row["started_at"], started_at),
        "completed": (row["finished_at"], finished_at),
    }


async def test_an_outcome_that_is_earlier_than_its_start_by_the_worker_s_clock(world, order):
    """The clock of the worker was set back while the body ran, by less than the run's age."""
    run = order.runs[0].run
    made_at = await world.value("SELECT created_at FROM dispatcher.run")
    await tell(world, order, RunStarted, at=made_at + timedelta(milliseconds=2), run=run)
    await project(world, DATABASE_CLOCK)
    await tell(world, order, RunCompleted, at=made_at + timedelta(milliseconds=1), run=run)
    await project(world, DATABASE_CLOCK)
    row = await check_times(world)
    assert row["finished_at"] == row["started_at"] == made_at + timedelta(milliseconds=2)
    assert row["worker_finished_at"] == made_at + timedelta(milliseconds=1)
    assert (await kept(world))["completed"][0] == row["finished_at"]


async def test_an_end_that_is_heard_before_a_later_start(world, order):
    run = order.runs[0].run
    made_at = await world.value("SELECT created_at FROM dispatcher.run")
    await tell(world, order, RunFailed, at=made_at + BEHIND, run=run, failure={"kind": "Fatal"})
    await project(world, DATABASE_CLOCK)
    assert await world.value("SELECT finished_at FROM dispatcher.run") == made_at
    await tell(world, order, RunStarted, at=made_at + timedelta(milliseconds=1), run=run)
    await project(world, DATABASE_CLOCK)
    row = await check_times(world)
    assert row["finished_at"] == row["started_at"] == made_at + timedelta(milliseconds=1)


@pytest.mark.parametrize("year", [1, 9999])
async def test_a_time_that_does_not_exist_in_utc(world, order, year):
    run = order.runs[0].run
    zone = timezone(timedelta(hours=14 if year == 1 else -14))
    at = datetime(year, 1 if year == 1 else 12, 1 if year == 1 else 31, 12, tzinfo=zone)
    await tell(world, order, RunStarted, at=at, run=run)
    await tell(world, order, RunCompleted, at=at, run=run)
    await project(world, DATABASE_CLOCK)
    row = await check_times(world)
    assert (row["state"], row["worker_started_at"]) == ("completed", None)
    assert await world.value("SELECT count(*) FROM dispatcher.rejected") == 0


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
    row = await check_times(world)
    assert row["state"] == outcome
    assert row["finished_at"] == row["started_at"]


async def test_the_dispatchers_clock_steps_back_behind_the_order(world, order):
    run = order.runs[0].run
    clock = SkewedClock()
    clock.moved = timedelta(hours=-1)
    await tell(world, order, RunStarted, at=utc_now(), run=run)
    await tell(world, order, RunCompleted, at=utc_now(), run=run)
    await project(world, clock)
    row = await check_times(world)
    assert row["created_at"] == row["started_at"] == row["finished_at"]


@pytest.mark.breaks_tables("ends work by hand")
async def test_the_schedulers_clock_steps_back_and_nothing_fires_twice(world):
    app = App("test")
    app.job("job")(lambda ctx: None)
    for number in range(5):
        app.schedule(f"m{number}", job="job", when=every(minutes=1))
    await world.declare(app)
    await world.make_due()
    clock = SkewedClock()
    world.database.clock = clock
    tick = Tick(world.database, holder="me", max_entries=None, relay=Handover())
    assert (await tick.run_once()).fired == 5
    await world.value("DELETE FROM scheduler.work")
    for moved in (-3600, -30, 0):
        clock.moved = timedelta(seconds=moved)
        assert (await tick.run_once()).fired == 0
    fired = await world.rows(
        "SELECT manifest_id, cause, count(*) FROM scheduler.occurrence GROUP BY 1, 2"
    )
    assert {row["count"] for row in fired} == {1}
