"""JetStream's API does not answer while core NATS does: workers keep contact all the same."""

import asyncio

import msgspec
import pytest
import pytest_asyncio
from headway_clock import monotonic
from headway_contract import subjects
from headway_contract.worker_protocol import HeartbeatReply
from headway_jetstream_kit.provisioning import consumer_names
from support.proxy import Proxy
from support.world import until


@pytest_asyncio.fixture
async def proxy(nats_url):
    made = await Proxy(nats_url).start()
    yield made
    await made.stop()


@pytest.mark.thorough
async def test_heartbeats_are_answered_and_consumers_made_once_it_answers(world, proxy):
    """As with a frozen disk: every request about a consumer is heard, and none is answered."""
    await world.broker.client.subscribe("$NO.API.>")
    world.nats_url = proxy.url
    await world.dispatcher()
    jobs = [f"job-{number}" for number in range(5)]
    proxy.swap = (b"$JS.API.CONSUMER", b"$NO.API.CONSUMER")
    await world.value(
        "INSERT INTO dispatcher.job_limit (name, version) SELECT unnest($1::text[]), 1", jobs
    )
    for _ in range(20):
        began = monotonic()
        body = msgspec.json.encode({"worker": "w", "nonce": "n", "jobs": jobs, "slots": 1})
        reply = await world.broker.client.request(subjects.HEARTBEAT, body, timeout=2)
        assert not msgspec.json.decode(reply.data, type=HeartbeatReply).error
        assert monotonic() - began < 1.5
        await asyncio.sleep(0.2)  # the heartbeat's own pace
    assert not await consumer_names(world.broker, subjects.RUNS_STREAM)
    proxy.swap = None

    async def are_made() -> bool:
        names = await consumer_names(world.broker, subjects.RUNS_STREAM)
        return {subjects.worker_consumer(job) for job in jobs} == set(names)

    await until(are_made, within=30, what="the consumers are made")
