"""Streams and consumers that are deleted, recreated, full, or hold stale messages."""

import logging
from uuid import uuid4

import pytest
import pytest_asyncio
from headway_contract import subjects
from headway_dispatcher.provisioning import (
    job_consumer,
    provision_by,
)
from headway_dispatcher.runs.orders import purge_events, withdraw_leftovers
from headway_dispatcher.settings import DispatcherSettings
from headway_embedded import NatsServer
from headway_jetstream_kit import Broker, Consumer, ConsumerMissing, Puller, Stream, pull
from headway_jetstream_kit.provisioning import (
    consumer_info,
    ensure_consumer,
    ensure_stream,
    stream_info,
)
from headway_jetstream_kit.stream_watch import Watch, done_through, see
from support.apps import nightly
from support.servers import needs_embedded
from support.world import STREAMS, until

pytestmark = pytest.mark.thorough

STREAM = Stream(name="S", config={"subjects": ["s.*"], "storage": "file"})
CONSUMER = Consumer(stream="S", name="c", config={"ack_policy": "explicit"})


@pytest.fixture
def app():
    return nightly()


async def test_a_consumer_that_went_away_silently_is_missed_after_a_few_empty_pulls(
    broker, monkeypatch
):
    await ensure_stream(broker, STREAM)
    await ensure_consumer(broker, CONSUMER)
    puller = Puller(broker, "S", "c")
    # No error arrives, as if the server that held the request had died.
    monkeypatch.setattr(Puller, "_ends", lambda self, raw, inbox: False)
    assert await puller.fetch(1, wait=0.2) == []
    await broker.api("STREAM.DELETE.S")
    with pytest.raises(ConsumerMissing, match="S/c does not exist"):
        for _ in range(pull.CHECK_AFTER_EMPTY):
            await puller.fetch(1, wait=0.2)


async def test_an_idle_consumer_is_not_taken_for_a_missing_one(broker):
    await ensure_stream(broker, STREAM)
    await ensure_consumer(broker, CONSUMER)
    puller = Puller(broker, "S", "c")
    for _ in range(2 * pull.CHECK_AFTER_EMPTY):
        assert await puller.fetch(1, wait=0.1) == []


async def test_a_new_stream_is_empty_even_if_the_storage_lost_only_its_description(tmp_path):
    needs_embedded()
    server = NatsServer(tmp_path / "own")
    await server.start()
    broker = await Broker.connect(server.url, name="test")
    await ensure_stream(broker, STREAM)
    for number in range(3):
        await broker.client.request(f"s.{number}", b"old")
    await broker.close()
    await server.stop()
    for description in (server.folder / "nats").rglob("meta.*"):
        description.unlink()
    await server.start()
    broker = await Broker.connect(server.url, name="test")
    try:
        assert await stream_info(broker, "S") is None
        assert await ensure_stream(broker, STREAM)
        info = await stream_info(broker, "S")
        assert (info["state"]["messages"], info["state"]["last_seq"]) == (0, 3)
    finally:
        await broker.close()
        await server.stop()


async def test_a_watch_sees_new_streams_and_those_that_went_back(broker):
    watch = Watch(broker, "S")
    await ensure_stream(broker, STREAM)
    assert await watch.look(), "the first check has nothing to compare with"
    await broker.client.request("s.1", b"")
    assert not await watch.look()
    await broker.api("STREAM.DELETE.S")
    assert await watch.look()
    await ensure_stream(broker, STREAM)
    assert await watch.look()
    assert not await watch.look()


async def test_done_through_follows_the_ack_floor_and_purges(broker):
    await ensure_stream(broker, STREAM)
    for number in range(4):
        await broker.client.request(f"s.{number}", b"")
    seen = await see(broker, "S")
    assert await done_through(broker, "S", "c", seen) is None
    await ensure_consumer(broker, CONSUMER)
    assert await done_through(broker, "S", "c", seen) == 0
    messages = await Puller(broker, "S", "c").take(4)
    await pull.ack(broker, [messages[0], messages[2]])

    async def floor() -> bool:
        return await done_through(broker, "S", "c", await see(broker, "S")) == 1

    await until(floor, within=5, what="the floor is where the first gap is")
    # Purged messages do not move the ack floor, but count as done: no consumer will get them.
    await broker.api("STREAM.PURGE.S")

    async def done() -> bool:
        return await done_through(broker, "S", "c", await see(broker, "S")) == 4

    await until(done, within=5, what="the consumer has caught up")


async def test_streams_and_consumers_are_made_by_the_settings(broker):
    wanted = DispatcherSettings(
        database_url="",
        nats_url="",
        stream_max_bytes=64 * 1024**2,
        stream_max_age_days=14,
        stream_ack_wait_seconds=45,
        stream_max_ack_pending=5000,
    )
    await provision_by(broker, wanted)
    for stream in (subjects.WORK_STREAM, subjects.EVENTS_STREAM):
        config = (await stream_info(broker, stream))["config"]
        assert (config["max_age"], config["max_bytes"]) == (14 * 86_400 * 10**9, 64 * 1024**2)
    config = (await consumer_info(broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER))[
        "config"
    ]
    assert (config["ack_wait"], config["max_ack_pending"]) == (45 * 10**9, 5000)
    assert job_consumer("j", wanted).config["ack_wait"] == 45 * 10**9
    # A lease must be renewed several times before the stream deletes its messages.
    assert wanted.renew_seconds == 14 * 86_400 / 4


async def test_without_permission_to_create_streams_it_logs_the_missing_stream_and_continues(
    world, app, caplog
):
    await world.provision()
    dispatcher = await world.dispatcher(provision="manual")
    await world.worker(app)
    with caplog.at_level(logging.WARNING):
        await world.broker.api(f"STREAM.DELETE.{subjects.EVENTS_STREAM}")
        dispatcher.wake("streams")
        await until(
            lambda: _logged(
                caplog, f"NATS lacks {subjects.EVENTS_STREAM}: run 'headway provision'"
            ),
            within=10,
            what="the log names the missing stream",
        )
    assert "Traceback" not in caplog.text
    status, body = await dispatcher.health.report("/readyz")
    assert status == 503
    assert subjects.EVENTS_STREAM in body
    await provision_by(world.broker, STREAMS)
    await world.fire(app)
    await world.until_settled(within=40)


async def _logged(caplog, text: str) -> bool:
    return text in caplog.text


@pytest_asyncio.fixture
async def leftovers(world, app):
    """Publish orders of a finished lease, of an unknown lease, and of a live lease."""
    await world.run(app)
    await world.until_settled()
    await world.stop_workers()
    finished = await world.value("SELECT id FROM dispatcher.lease")
    live = uuid4()
    await world.value(
        "INSERT INTO dispatcher.lease (id, token, job, created_at)"
        " VALUES ($1, 't', 'job', clock_timestamp())",
        live,
    )
    for lease in (finished, uuid4(), live):
        await world.broker.client.request(subjects.order("job", lease), b"{}")
    return live


async def stored_orders(world) -> set[str]:
    info = await world.broker.api(
        f"STREAM.INFO.{subjects.RUNS_STREAM}", {"subjects_filter": subjects.RUNS_SUBJECTS}
    )
    return set(info["state"].get("subjects") or {})


async def test_orders_of_finished_leases_are_withdrawn_and_live_ones_stay(world, leftovers):
    assert len(await stored_orders(world)) == 3
    assert await withdraw_leftovers(world.database, world.broker) == 2
    assert await stored_orders(world) == {subjects.order("job", leftovers)}


async def test_a_half_full_stream_of_events_is_purged_up_to_what_is_projected(world, leftovers):
    assert await purge_events(world.database, world.broker) == 0, "there is room enough"
    stream = subjects.EVENTS_STREAM
    info = await stream_info(world.broker, stream)
    small = {**info["config"], "max_bytes": info["state"]["bytes"] * 2}
    dispatcher = world.services[0]
    await dispatcher.end_pass("streams")
    await dispatcher.end_pass("tidying")
    await world.broker.api(f"STREAM.UPDATE.{stream}", small)

    async def projected() -> bool:
        found = await consumer_info(world.broker, stream, subjects.EVENTS_CONSUMER)
        return found["num_ack_pending"] == 0

    await until(projected, within=10, what="everything is projected")
    last = info["state"]["last_seq"]
    assert await purge_events(world.database, world.broker) == last
    info = await stream_info(world.broker, stream)
    assert (info["state"]["messages"], info["state"]["last_seq"]) == (0, last)
    assert await stored_orders(world) == {subjects.order("job", leftovers)}
