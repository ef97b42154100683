"""Message intakes: a stopped intake loses no message."""

import asyncio

import pytest
from headway_contract import subjects
from headway_dispatcher.runs.projector import no_claim_alone
from headway_jetstream_kit import Puller, Stored
from headway_jetstream_kit.consume import Intake
from headway_jetstream_kit.provisioning import consumer_info
from headway_jetstream_kit.publish import publish
from headway_jetstream_kit.tasks import end
from support.world import until

pytestmark = pytest.mark.thorough


async def test_messages_after_its_end_are_left_for_the_next_intake(world):
    """The connection may stay open after the end, but the pull request must not."""
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


SUBJECTS = [f"headway.event.01930000-0000-7000-8000-00000000000{number}.w1" for number in (1, 2)]


async def publish_event(world, subject, *, after):
    headers = {subjects.EXPECTED_SEQUENCE_HEADER: str(after)}
    assert isinstance(await publish(world.broker, subject, b"{}", headers=headers), Stored)


def lingering(world, *, seconds, complete) -> Puller:
    return Puller(
        world.broker,
        subjects.EVENTS_STREAM,
        subjects.EVENTS_CONSUMER,
        linger=seconds,
        complete=complete,
    )


async def test_a_fetch_lingers_until_its_claims_are_complete(world):
    """The fetch ends before its hour, once the second message of each claim has arrived."""
    await world.provision()
    puller = lingering(world, seconds=3600, complete=no_claim_alone)
    fetching = asyncio.create_task(puller.fetch(500, wait=10))
    for subject in SUBJECTS:
        await publish_event(world, subject, after=0)
    for after, subject in enumerate(SUBJECTS, start=1):
        assert not fetching.done()
        await publish_event(world, subject, after=after)
    assert [message.subject for message in await fetching] == SUBJECTS * 2


async def test_a_fetch_lingers_no_longer_than_its_limit(world):
    await world.provision()
    puller = lingering(world, seconds=0.001, complete=no_claim_alone)
    await publish_event(world, SUBJECTS[0], after=0)
    [message] = await puller.fetch(500, wait=10)
    # The request is still open, and receives the later message.
    await publish_event(world, SUBJECTS[0], after=1)
    [second] = await puller.fetch(500, wait=10)
    assert [message.sequence, second.sequence] == [1, 2]
