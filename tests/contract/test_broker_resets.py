"""Messages of a killed puller, and how another gets them before the ack wait."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.provisioning import consumer_info, take_over
from headway_jetstream_kit.pull import ack
from nats.js import JetStreamContext

pytestmark = pytest.mark.thorough

ACK_WAIT = 30.0
STREAM = "LEFT_BEHIND"


@pytest.fixture
async def broker(nats_url: str, jetstream: JetStreamContext) -> AsyncIterator[Broker]:
    made = await Broker.connect(nats_url, name="test")
    yield made
    await made.close()


def url_of(broker: Broker) -> str:
    """The URL that a broker is connected to, password included."""
    assert broker.client.connected_url is not None
    return broker.client.connected_url.geturl()


async def fill(broker: Broker, name: str, retention: str, *, delivered: int, acked: int) -> None:
    """A stream of ten messages, of which a puller that is gone has had some."""
    await broker.api(
        f"STREAM.CREATE.{name}",
        {"name": name, "subjects": [f"{name}.*"], "retention": retention},
    )
    config = {"durable_name": "d", "name": "d", "ack_policy": "explicit", "ack_wait": 30 * 10**9}
    await broker.api(f"CONSUMER.DURABLE.CREATE.{name}.d", {"stream_name": name, "config": config})
    for number in range(10):
        await broker.client.request(f"{name}.a", str(number).encode())
    gone = await Broker.connect(url_of(broker), name="gone")
    had = await all_of(Puller(gone, name, "d"), delivered)
    await ack(gone, had[:acked])
    await until_pending(broker, name, delivered - acked)
    await gone.close()


async def until_pending(broker: Broker, name: str, count: int) -> None:
    """Wait until so many messages are unacknowledged: the broker counts acks when it finds time."""
    async with asyncio.timeout(10):
        while (await consumer_info(broker, name, "d") or {}).get("num_ack_pending") != count:
            await asyncio.sleep(0.01)


async def all_of(puller: Puller, count: int) -> list[Message]:
    messages: list[Message] = []
    async with asyncio.timeout(5):
        while len(messages) < count:
            messages += await puller.fetch(count - len(messages))
    return messages


@pytest.mark.parametrize("retention", ["limits", "workqueue"])
async def test_it_comes_again_at_once(broker, new_name, retention):
    name = new_name(STREAM)
    await fill(broker, name, retention, delivered=7, acked=3)
    assert await take_over(broker, name, "d") == 4
    again = await all_of(Puller(broker, name, "d"), 7)
    assert [int(message.body) for message in again] == [3, 4, 5, 6, 7, 8, 9], "then what is new"
    await ack(broker, again)
    await until_pending(broker, name, 0)
    info = await consumer_info(broker, name, "d")
    assert info is not None
    assert info["num_pending"] == 0


async def test_without_it_nothing_comes_before_the_ack_wait(broker, new_name):
    name = new_name(STREAM)
    await fill(broker, name, "workqueue", delivered=10, acked=3)
    assert await Puller(broker, name, "d").fetch(10, wait=1) == []


async def test_with_nothing_left_behind_nothing_is_done(broker, new_name):
    name = new_name(STREAM)
    await fill(broker, name, "workqueue", delivered=3, acked=3)
    assert await take_over(broker, name, "d") == 0
    assert await take_over(broker, name, "no-such-consumer") == 0


async def test_while_somebody_pulls_it_may_be_theirs(broker, new_name):
    name = new_name(STREAM)
    await fill(broker, name, "workqueue", delivered=10, acked=3)
    waiting = asyncio.create_task(Puller(broker, name, "d").fetch(1, wait=2))
    async with asyncio.timeout(5):
        while not (await consumer_info(broker, name, "d") or {}).get("num_waiting"):
            await asyncio.sleep(0.01)
    assert await take_over(broker, name, "d") == 0
    assert await waiting == []


async def test_an_ack_for_the_first_delivery_still_counts(broker, new_name):
    """A process that was only slow acknowledges after another took over: it is done, then."""
    name = new_name(STREAM)
    await fill(broker, name, "limits", delivered=0, acked=0)
    slow = await all_of(Puller(broker, name, "d"), 10)
    other = await Broker.connect(url_of(broker), name="other")
    await broker.api(f"CONSUMER.RESET.{name}.d")
    again = await all_of(Puller(other, name, "d"), 10)
    assert len(again) == 10
    await ack(broker, slow)
    await broker.client.flush()
    await ack(other, again)
    await until_pending(broker, name, 0)
    await other.close()
