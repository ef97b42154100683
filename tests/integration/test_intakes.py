"""An intake that is ended takes nothing along."""

import asyncio

from headway_contract import subjects
from headway_jetstream_kit import Puller, Stored
from headway_jetstream_kit.consuming import Intake
from headway_jetstream_kit.provisioning import consumer_info
from headway_jetstream_kit.publishing import publish
from headway_jetstream_kit.tasks import end
from support.world import until


async def test_what_comes_after_its_end_is_for_the_next_one(world):
    """Its connection may live on for a while: the request that it made must not."""
    await world.provision()
    taken = []

    async def handle(messages):
        taken.extend(messages)

    puller = Puller(world.broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER)
    intake = Intake(world.broker, puller, handle=handle, reject=None, outages=())
    running = asyncio.create_task(intake.run_once())

    async def waits():
        info = await consumer_info(world.broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER)
        return info["num_waiting"] == 1

    await until(waits, within=10, what="its request is open")
    await end([running])
    subject = "headway.event.01930000-0000-7000-8000-000000000003.w1"
    assert isinstance(await publish(world.broker, subject, b"{}"), Stored)
    other = Puller(world.broker, subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER)
    [message] = await other.fetch(1, wait=10)
    assert (message.subject, message.deliveries) == (subject, 1)
    assert taken == []
