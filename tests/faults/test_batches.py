"""The intake of messages, where what it stands on is at fault and where a message is."""

import asyncio

import pytest
import pytest_asyncio
from headway_jetstream_kit import Puller
from headway_jetstream_kit.consume import Intake, Unreadable
from headway_jetstream_kit.provisioning import consumer_info

pytestmark = pytest.mark.thorough


class Outage(Exception):
    """A server that the handler needs is away."""


@pytest_asyncio.fixture
async def puller(broker) -> Puller:
    await broker.api("STREAM.CREATE.BATCH", {"name": "BATCH", "subjects": ["batch.*"]})
    config = {"durable_name": "d", "ack_policy": "explicit"}
    await broker.api("CONSUMER.DURABLE.CREATE.BATCH.d", {"stream_name": "BATCH", "config": config})
    return Puller(broker, "BATCH", "d")


async def fill(broker, count: int) -> None:
    for number in range(count):
        await broker.client.request("batch.a", str(number).encode())


async def take_all(broker, intake) -> None:
    async with asyncio.timeout(40):
        while True:
            info = await consumer_info(broker, "BATCH", "d")
            if not info["num_pending"] and not info["num_ack_pending"]:
                return
            try:
                await intake.run_once()
            except Outage:
                continue


async def test_a_batch_that_is_too_much_comes_in_smaller_portions(broker, puller):
    taken, sizes, rejected = [], [], []

    async def handle(messages):
        sizes.append(len(messages))
        if len(messages) > 3:
            raise Outage
        taken.extend(message.body for message in messages)

    async def reject(message, reason):
        rejected.append(message)

    await fill(broker, 20)
    intake = Intake(broker, puller, handle=handle, reject=reject, outages=(Outage,), batch=20)
    await take_all(broker, intake)
    assert sorted(set(taken)) == sorted(str(number).encode() for number in range(20))
    assert max(sizes) > 3
    assert rejected == []


async def test_only_the_message_at_fault_is_tried_again_and_only_five_times(broker, puller):
    taken, tries, rejected = [], [], []

    async def handle(messages):
        if any(message.body == b"7" for message in messages):
            tries.append(len(messages))
            raise ValueError("not this one")
        taken.extend(message.body for message in messages)

    async def reject(message, reason):
        rejected.append((message.body, reason))

    await fill(broker, 20)
    intake = Intake(broker, puller, handle=handle, reject=reject, outages=(Outage,), batch=20)
    await take_all(broker, intake)
    assert rejected == [(b"7", "ValueError: not this one")]
    assert tries.count(1) == 5
    assert len(taken) == 19, "every other one was handled once"


@pytest.mark.parametrize("outages", [3, 12])
async def test_outages_count_for_nothing(broker, puller, outages):
    """However often what we stand on is away, no message is to blame."""
    left, taken, rejected = outages, [], []

    async def handle(messages):
        nonlocal left
        if left:
            left -= 1
            raise Outage
        taken.extend(message.body for message in messages)

    async def reject(message, reason):
        rejected.append(message)

    await fill(broker, 4)
    intake = Intake(broker, puller, handle=handle, reject=reject, outages=(Outage,))
    await take_all(broker, intake)
    assert sorted(set(taken)) == [b"0", b"1", b"2", b"3"]
    assert rejected == []


async def test_what_cannot_be_read_is_put_aside_at_once(broker, puller):
    tries, rejected = 0, []

    async def handle(messages):
        nonlocal tries
        tries += 1
        raise Unreadable("no")

    async def reject(message, reason):
        rejected.append(message.body)

    await fill(broker, 1)
    intake = Intake(broker, puller, handle=handle, reject=reject, outages=(Outage,))
    await take_all(broker, intake)
    assert (tries, rejected) == (1, [b"0"])
