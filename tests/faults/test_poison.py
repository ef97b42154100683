"""Messages that cannot be handled, in one batch with good ones.

Whatever comes, every message is applied, counted or put aside with its bytes, and the good ones
around it get through. `generated` draws the bad ones; those by name are the known traps.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from uuid import UUID, uuid4

import msgspec
import pytest
import pytest_asyncio
from headway import App
from headway_clock import utc_now
from headway_contract import Event, decode, encode, event, subjects
from headway_contract.lifecycle import LeaseClaimed, RunCompleted
from headway_contract.orders import RunDispatched
from headway_contract.settled import WorkSettled
from headway_contract.work import WorkQueued
from headway_dispatcher.intake.work_intake import work_intake
from headway_dispatcher.wakeups import Wakeups
from headway_jetstream_kit import Refused
from headway_jetstream_kit.provisioning import stream_info
from headway_jetstream_kit.publish import publish
from headway_scheduler.outcomes.settle import settled_intake
from headway_service_kit.passes import Wakeup
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from support import works
from support.cadences import when_made_due
from support.invariants import check_invariants
from support.poison import HOSTILE, Batch, Orders, generated
from support.raw_nats import publish_raw
from support.work_events import order_puller
from support.world import until

pytestmark = pytest.mark.long

RUNS = 12
ROUNDS = settings(
    max_examples=4,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest_asyncio.fixture
async def orders(world) -> Orders:
    app = App("test")
    app.job("job")(lambda ctx: None)
    for number in range(RUNS):
        app.schedule(f"m{number}", job="job", when=when_made_due())
    dispatcher = await world.dispatcher(orphan_timeout_seconds=600)
    await world.beat("w1", nonce="n1", slots=RUNS)
    scheduler = await world.fire(app)
    puller = await order_puller(world, "job")
    taken: list[RunDispatched] = []
    async with asyncio.timeout(20):
        while len(taken) < RUNS:
            for message in await puller.fetch(RUNS):
                taken += [item.data for item in decode(message.body) if isinstance(item, Event)]
    # With its connection the pull that it has open is gone, too.
    for service in (scheduler, dispatcher):
        world.services.remove(service)
        await service.stop()
    return Orders(world, taken)


TRAPS = {
    "empty": b"",
    "not-json": b"rubbish",
    "not-utf8": b"\xff\xfe\x00",
    "an-empty-array": b"[]",
    "an-array-of-arrays": b"[[],[]]",
    "half-an-event": b'{"specversion":"1.0","id":"x"}',
    "no-time": b'{"specversion":"1.0","id":"x","source":"s","type":"headway.run.completed.v1"}',
    "deep": b"[" * 20_000,
    "a-number": b"1e999",
    "an-unknown-type": b'{"specversion":"1.0","id":"x","source":"s","type":"headway.new.v9"}',
}


async def test_good_events_among_all_known_traps(orders):
    victim, *others = orders.taken
    batch = Batch(orders.world, seed=1)
    subject = subjects.event(victim.lease, "w1")
    batch.add(subject, *TRAPS.values())
    good = msgspec.json.decode(orders.good(victim))
    for value in HOSTILE:
        for where in ("output", "run", "token"):
            bad = {**good, "id": str(uuid4()), "data": {**good["data"]}}
            bad["data"][where] = msgspec.Raw(value.encode())
            batch.add(subject, msgspec.json.encode(bad))
        for where in ("id", "time", "type", "source", "traceparent", "data"):
            bad = {**good, "id": str(uuid4()), where: msgspec.Raw(value.encode())}
            batch.add(subject, msgspec.json.encode(bad))
    for order in others:
        batch.add(subjects.event(order.lease, "w1"), orders.good(order))
    await batch.tell()
    await orders.project(batch)
    aside = await orders.accounted_for(batch)
    assert aside > 30
    assert await orders.completed() >= {order.runs[0].run for order in others}
    await check_invariants(orders.world.database, rejected=aside)


async def test_an_id_counts_once_for_its_subject_whatever_lease_its_data_names(orders):
    order = orders.taken[0]
    first = msgspec.json.decode(orders.good(order))
    second = {**first, "data": {**first["data"], "lease": str(UUID(int=0))}}
    batch = Batch(orders.world)
    for item in (first, second):
        batch.add(subjects.event(order.lease, "w1"), msgspec.json.encode(item))
        await batch.tell()
    await orders.project(batch)
    assert await orders.accounted_for(batch) == 0
    assert await orders.completed() == {order.runs[0].run}


@pytest.mark.timeout(240)
@pytest.mark.long
async def test_good_events_among_generated_ones(orders):
    """Bad events bear the right token of a real lease, or are no events at all."""
    victim, *others = orders.taken
    batch = Batch(orders.world, seed=2)
    published = 0

    @ROUNDS
    @given(st.lists(generated(orders.good(victim)), min_size=30, max_size=60))
    def collect(bodies: list[bytes]) -> None:
        nonlocal published
        batch.add(subjects.event(victim.lease, "w1"), *bodies)
        published += len(bodies)

    collect()
    for order in others:
        batch.add(subjects.event(order.lease, "w1"), orders.good(order))
    await batch.tell()
    await orders.project(batch)
    aside = await orders.accounted_for(batch)
    assert published >= 100
    assert aside > 10
    assert await orders.completed() >= {order.runs[0].run for order in others}
    await check_invariants(orders.world.database, rejected=aside)


async def test_an_event_told_a_hundred_times_in_any_order_counts_once(orders):
    order = orders.taken[0]
    run = order.runs[0].run
    words = [
        orders.word(order, LeaseClaimed, host="here"),
        orders.word(order, RunCompleted, run=run, output="once"),
    ]
    batch = Batch(orders.world, seed=3)
    batch.add(subjects.event(order.lease, "w1"), *(words * 100))
    await batch.tell()
    await orders.project(batch)
    kinds = await orders.world.rows(
        "SELECT type, count(*) FROM dispatcher.history WHERE lease_id = $1 GROUP BY type",
        order.lease,
    )
    assert {row["type"]: row["count"] for row in kinds} == {
        "headway.run.dispatched.v1": 1,
        "headway.lease.claimed.v1": 1,
        "headway.run.completed.v1": 1,
    }
    assert await orders.completed() == {run}
    await check_invariants(orders.world.database)


@pytest.mark.parametrize(
    "headers",
    [
        b"Status: 404\r\n",
        b"Status: 409\r\nDescription: Consumer Deleted\r\n",
        b"Status: 500\r\n",
        b"Status: 100\r\nDescription: Idle Heartbeat\r\n",
        b"Nats-Expected-Last-Msg-Id: \r\n",
        b"\xff\xfe: \xff\r\n",
    ],
)
async def test_no_header_makes_an_event_disappear(orders, headers):
    order = orders.taken[0]
    subject = subjects.event(order.lease, "w1").encode()
    await publish_raw(orders.world.nats_url, subject, orders.good(order), headers)

    async def is_stored() -> bool:
        info = await stream_info(orders.world.broker, subjects.EVENTS_STREAM)
        return info["state"]["messages"] > 0

    await until(is_stored, within=10, what="the event is in the stream")
    await orders.project(Batch(orders.world))
    assert await orders.completed() == {order.runs[0].run}


async def test_subjects_that_are_no_text_or_name_no_worker_are_put_aside(orders):
    order = orders.taken[0]
    good = orders.good(order)
    strange = [
        f"headway.event.{order.lease}.".encode() + b"\xff\xfe",
        b"headway.event.\xff.w1",
        b"headway.event.nobody.w1",
        f"headway.event.{str(order.lease).upper()}.w1".encode(),
    ]
    for subject in strange:
        await publish_raw(orders.world.nats_url, subject, good)
    batch = Batch(orders.world)
    await orders.project(batch)
    assert orders.world.broker.client.reads
    aside = await batch.rejected()
    assert aside == {good: len(strange)}
    assert await orders.completed() == set()


async def test_events_of_leases_that_nobody_knows_are_kept_as_refused(orders):
    """Such as after a database that lost its last commits: told, refused, on record."""
    known, *others = orders.taken
    batch = Batch(orders.world)
    strangers = [msgspec.structs.replace(order, lease=uuid4()) for order in others]
    for order in strangers:
        batch.add(subjects.event(order.lease, "w1"), orders.good(order))
    batch.add(subjects.event(known.lease, "w1"), orders.good(known))
    await batch.tell()
    await orders.project(batch)
    assert await orders.accounted_for(batch) == 0
    refused = await orders.world.rows(
        "SELECT lease_id, refusal FROM dispatcher.history WHERE NOT accepted"
    )
    assert {row["lease_id"] for row in refused} == {order.lease for order in strangers}
    assert {row["refusal"] for row in refused} == {"unknown_lease"}
    assert await orders.completed() == {known.runs[0].run}


async def test_an_oversized_event_never_gets_as_far_as_the_stream(orders):
    order = orders.taken[0]
    huge = orders.word(order, RunCompleted, run=order.runs[0].run, output="x" * 2**20)
    answer = await publish(orders.world.broker, subjects.event(order.lease, "w1"), huge)
    assert isinstance(answer, Refused)
    assert orders.world.broker.client.is_connected, "the server would have cut us off"


def queued(work: UUID, **fields) -> WorkQueued:
    return works.queued(
        **{
            "work": work,
            "group": "ops",
            "job": "job",
            "cause": f"test:{work}",
            "queued_at": utc_now(),
            **fields,
        }
    )


def envelope(data, work: UUID) -> bytes:
    return encode(event(data, id=uuid4(), source="test", subject=work, time=utc_now()))


@pytest.mark.timeout(240)
async def test_good_work_among_generated_messages(world):
    await world.provision()
    batch = Batch(world, seed=4)
    template = envelope(queued(uuid4(), manifest_id=uuid4(), manifest="m", input={"a": 1}), uuid4())

    @ROUNDS
    @given(st.lists(generated(template), min_size=30, max_size=60))
    def collect(bodies: list[bytes]) -> None:
        batch.add(subjects.work("ops"), *bodies)

    collect()
    works = [uuid4() for _ in range(20)]
    batch.add(subjects.work("ops"), *(envelope(queued(work), work) for work in works))
    await batch.tell()
    intake = work_intake(
        world.database,
        world.broker,
        wake=Wakeups(),
        rank_step=timedelta(seconds=60),
        retention=timedelta(days=30),
    )
    await batch.take_in(intake, subjects.WORK_STREAM, subjects.WORK_CONSUMER)
    rows = await world.rows("SELECT id FROM dispatcher.work_queue")
    assert {row["id"] for row in rows} >= set(works)
    await _put_aside_or_readable(batch, await batch.rejected())


@pytest.mark.timeout(240)
async def test_good_outcomes_among_generated_messages(world):
    app = App("test")
    app.job("job", group="ops")(lambda ctx: None)
    app.schedule("m", job="job", when=when_made_due())
    await world.provision()
    scheduler = await world.fire(app)
    await world.until("SELECT count(*) FROM scheduler.work")
    world.services.remove(scheduler)
    await scheduler.stop()
    [work] = await world.rows("SELECT * FROM scheduler.work")
    outcome = WorkSettled(
        work=work["id"],
        round=1,
        manifest_id=work["manifest_id"],
        manifest="m",
        group="ops",
        outcome="completed",
        runs=1,
        attempts=1,
        settled_at=utc_now(),
    )
    stranger = msgspec.structs.replace(outcome, work=uuid4(), manifest_id=uuid4())
    batch = Batch(world, seed=5)

    @ROUNDS
    @given(st.lists(generated(envelope(stranger, uuid4())), min_size=30, max_size=60))
    def collect(bodies: list[bytes]) -> None:
        batch.add(subjects.settled("ops"), *bodies)

    collect()
    batch.add(subjects.settled("ops"), envelope(outcome, work["id"]))
    await batch.tell()
    intake = settled_intake(world.database, world.broker, tick=Wakeup())
    await batch.take_in(intake, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    assert await world.value("SELECT count(*) FROM scheduler.work") == 0
    assert await world.value("SELECT success_number FROM scheduler.manifest") == 1
    await _put_aside_or_readable(batch, await batch.rejected("scheduler"))


async def _put_aside_or_readable(batch: Batch, aside: Counter) -> None:
    """Check that every message was put aside, applied, or is of a type for others."""
    assert sum(aside.values()) > 10
    for _, body in batch.stored:
        if aside[body]:
            aside[body] -= 1
        else:
            decode(body)
    assert not +aside
