"""Streams that are full, and what the streams and consumers are made of."""

import asyncio
import logging

import pytest
from headway import App
from headway_contract import subjects
from headway_contract.fields import OUTPUT_LIMIT
from headway_dispatcher.provisioning import consumers, job_consumer
from headway_dispatcher.settings import LEAST_STREAM_BYTES, DispatcherSettings
from headway_jetstream_kit import BrokerUnavailable, NoAnswer
from headway_jetstream_kit.provisioning import consumer_info, ensure_consumer, stream_info
from headway_jetstream_kit.publish import publish
from headway_relay import Handover, Relay
from headway_scheduler.fire.tick import Tick
from headway_scheduler.store import OUTBOX
from headway_service_kit.settings import InvalidSettings, read
from support.cadences import when_made_due
from support.invariants import check_invariants
from support.world import STREAMS, until

pytestmark = pytest.mark.long


async def set_most_bytes(world, stream: str, most: int) -> None:
    info = await stream_info(world.broker, stream)
    await world.broker.api(f"STREAM.UPDATE.{stream}", {**info["config"], "max_bytes": most})


def app_of(count: int) -> App:
    app = App("test")

    @app.job("job")
    async def job(ctx): ...

    for number in range(count):
        # One group each, so that each piece of work is a message of its own.
        app.schedule(f"m{number}", job="job", when=when_made_due(), group=f"g{number}")
    return app


async def test_a_full_work_stream_holds_nothing_back_but_the_messages(world):
    app = app_of(20)
    await world.provision()
    await set_most_bytes(world, subjects.WORK_STREAM, 3000)
    await world.declare(app)
    await world.make_due()
    tick = Tick(world.database, holder="me", max_entries=5, relay=Handover())
    relay = Relay(world.database, world.broker, OUTBOX)
    fired, complaints = 0, []
    for _ in range(4):
        fired += (await tick.run_once()).fired
        try:
            await relay.run_once()
        except BrokerUnavailable as error:
            complaints.append(str(error))
    assert fired == 20, "deciding goes on"
    assert complaints
    assert all("maximum bytes exceeded" in complaint for complaint in complaints), complaints
    waiting = await world.value("SELECT count(*) FROM scheduler.outbox")
    assert waiting > 5

    scheduler = await world.scheduler(app, tick="off")

    async def trouble():
        status, body = await scheduler.health.report("/readyz")
        return status == 503 and "relay" in body and "maximum bytes" in body

    async with asyncio.timeout(10):
        while not await trouble():
            await asyncio.sleep(0.05)
    await world.dispatcher(provision="manual")
    await world.worker(app)
    await world.until_settled(at_least=20, within=40)
    await check_invariants(world.database)


async def test_a_full_event_stream_makes_workers_wait_and_run_nothing_twice(world, caplog):
    app = App("test")
    bodies, may_end = [], asyncio.Event()

    @app.job("job")
    @when_made_due()
    async def job(ctx):
        bodies.append(ctx.run)
        await may_end.wait()

    await world.provision()
    await ensure_consumer(world.broker, job_consumer("job", STREAMS))
    await world.dispatcher(provision="manual")
    await world.worker(app)
    await world.fire(app)
    await world.until("SELECT count(*) FROM dispatcher.run WHERE state = 'in_progress'")
    info = await stream_info(world.broker, subjects.EVENTS_STREAM)
    await set_most_bytes(world, subjects.EVENTS_STREAM, info["state"]["bytes"])
    caplog.set_level(logging.INFO)
    may_end.set()

    async def refused():
        return "event not stored" in caplog.text and "Refused" in caplog.text

    await until(refused, within=10, what="the outcome is refused")
    assert await world.value("SELECT state FROM dispatcher.run") == "in_progress"
    await set_most_bytes(world, subjects.EVENTS_STREAM, 64 * 1024**2)
    await world.until_settled()
    assert len(bodies) == 1
    assert await world.value("SELECT state FROM dispatcher.run") == "completed"
    await check_invariants(world.database)


@pytest.mark.parametrize("reply", [b"{}", b'{"duplicate":true}', b'{"seq":0}', b"[]", b"no"])
async def test_only_an_answer_with_a_sequence_means_stored(world, reply):
    async def answer(message):
        await message.respond(reply)

    await world.broker.client.subscribe("no.stream", cb=answer)
    assert isinstance(await publish(world.broker, "no.stream", b""), NoAnswer)


async def test_the_settings_that_keep_messages(world):
    """Each of these has a trap behind it; docs/reliability.md names them."""
    await world.provision()
    await ensure_consumer(world.broker, job_consumer("job", STREAMS))
    for wanted in [*consumers(STREAMS), job_consumer("job", STREAMS)]:
        found = (await consumer_info(world.broker, wanted.stream, wanted.name))["config"]
        assert found["ack_policy"] == "explicit"
        assert found["max_deliver"] == -1, "who gives up on a message decides that here"
        assert not found.get("inactive_threshold"), "a durable must not vanish by itself"
        assert not found.get("backoff")
        assert found["durable_name"] == wanted.name
    policies = {}
    for stream in (
        subjects.WORK_STREAM,
        subjects.RUNS_STREAM,
        subjects.EVENTS_STREAM,
        subjects.SETTLED_STREAM,
    ):
        found = (await stream_info(world.broker, stream))["config"]
        assert found["storage"] == "file"
        policies[stream] = (found["retention"], found["discard"])
    assert policies == {
        subjects.WORK_STREAM: ("workqueue", "new"),
        subjects.RUNS_STREAM: ("workqueue", "new"),
        subjects.EVENTS_STREAM: ("limits", "new"),
        subjects.SETTLED_STREAM: ("limits", "old"),
    }


async def test_the_smallest_streams_that_are_accepted_work(world):
    """More than fits into a stream goes through it, with the largest outputs."""
    app = App("test")

    @app.job("job")
    async def job(ctx, number: int) -> str:
        return "x" * (OUTPUT_LIMIT - 100)

    app.schedule_many(
        "many", job=job, items=[(f"n{i}", i) for i in range(24)], when=when_made_due()
    )
    await world.dispatcher(stream_max_bytes=LEAST_STREAM_BYTES)
    await world.worker(app)
    await world.fire(app)
    await world.until_settled(at_least=24, within=90)
    assert await world.value("SELECT count(*) FROM dispatcher.run") == 24


def test_smaller_streams_are_refused():
    urls = {"HEADWAY_DATABASE_URL": "a", "HEADWAY_NATS_URL": "b"}
    with pytest.raises(InvalidSettings, match=r"HEADWAY_STREAM_MAX_BYTES='60000': .*>= 4194304"):
        read(DispatcherSettings, {**urls, "HEADWAY_STREAM_MAX_BYTES": "60000"})
