"""Facts that claims and fences rest on when the stream has three replicas."""

import asyncio
from collections.abc import Callable

import pytest
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.provisioning import take_over
from headway_jetstream_kit.pull import ack
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import ConsumerInfo, DiscardPolicy, RetentionPolicy
from nats.js.errors import APIError, ServiceUnavailableError

pytestmark = pytest.mark.long

LEASES = 100

ACCEPTED = None
WRONG_LAST_SEQUENCE = 10071
UNDECIDED = 10164
STORE_FAILED = 10077
MESSAGE_ID_UNDECIDED = 10158


@pytest.fixture
async def rivals(members: list[Client]) -> list[JetStreamContext]:
    """Three workers, each at another member."""
    return [member.jetstream() for member in members]


@pytest.fixture
async def events(rivals: list[JetStreamContext], new_name: Callable[[str], str]) -> str:
    """The replicated stream of lifecycle events."""
    name = new_name("HEADWAY_EVENTS")
    await rivals[0].add_stream(
        name=name, subjects=["headway.event.*.*"], discard=DiscardPolicy.NEW, num_replicas=3
    )
    await until_known_everywhere(rivals, name)
    return name


@pytest.fixture
async def runs(rivals: list[JetStreamContext], new_name: Callable[[str], str]) -> str:
    """The replicated stream of orders, with room for two."""
    name = new_name("HEADWAY_RUNS")
    await rivals[0].add_stream(
        name=name,
        subjects=["headway.run.*.*"],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        discard_new_per_subject=True,
        max_msgs_per_subject=1,
        max_msgs=2,
        num_replicas=3,
    )
    await until_known_everywhere(rivals, name)
    return name


async def until_known_everywhere(rivals: list[JetStreamContext], stream: str) -> None:
    """The leader answers each member after it told it about the subjects."""
    for rival in rivals:
        await rival.stream_info(stream)


def fence(lease: str, sequence: int) -> dict[str, str]:
    return {
        "Nats-Expected-Last-Subject-Sequence": str(sequence),
        "Nats-Expected-Last-Subject-Sequence-Subject": f"headway.event.{lease}.*",
    }


async def verdict(worker: JetStreamContext, subject: str, headers: dict[str, str]) -> int | None:
    """None when the message was stored, else the code of the refusal."""
    try:
        await worker.publish(subject, headers=headers)
    except APIError as refusal:
        return refusal.err_code
    return ACCEPTED


async def rival_verdicts(
    rivals: list[JetStreamContext], lease: str, headers: dict[str, str]
) -> list[int | None]:
    """All rivals publish about one lease at the same time."""
    return await asyncio.gather(
        *(
            verdict(worker, f"headway.event.{lease}.worker-{n}", headers)
            for n, worker in enumerate(rivals)
        )
    )


async def stored_of_each_subject(worker: JetStreamContext, stream: str) -> dict[str, int]:
    state = (await worker.stream_info(stream, subjects_filter=">")).state
    return state.subjects or {}


async def test_rival_claims_at_different_members_are_stored_once_for_each_lease(rivals, events):
    leases = [f"lease-{n}" for n in range(LEASES)]

    verdicts = await asyncio.gather(
        *(rival_verdicts(rivals, lease, fence(lease, 0)) for lease in leases)
    )

    assert all(codes.count(ACCEPTED) == 1 for codes in verdicts)
    # A rival that comes while the first claim is being replicated hears that it is undecided.
    assert {code for codes in verdicts for code in codes} <= {
        ACCEPTED,
        WRONG_LAST_SEQUENCE,
        UNDECIDED,
    }
    stored = await stored_of_each_subject(rivals[0], events)
    assert sorted(subject.split(".")[2] for subject in stored) == sorted(leases)
    assert set(stored.values()) == {1}


async def test_rival_outcomes_are_stored_once_for_each_claimed_lease(rivals, events):
    leases = [f"lease-{n}" for n in range(LEASES)]
    claims = await asyncio.gather(
        *(
            rivals[0].publish(f"headway.event.{lease}.claimant", headers=fence(lease, 0))
            for lease in leases
        )
    )

    verdicts = await asyncio.gather(
        *(
            rival_verdicts(rivals, lease, fence(lease, claim.seq))
            for lease, claim in zip(leases, claims, strict=True)
        )
    )

    assert all(codes.count(ACCEPTED) == 1 for codes in verdicts)
    assert (await rivals[0].stream_info(events)).state.messages == 2 * LEASES


async def test_without_the_second_header_rival_claims_are_all_stored(rivals, events):
    unfenced = {"Nats-Expected-Last-Subject-Sequence": "0"}

    assert await rival_verdicts(rivals, "lease", unfenced) == [ACCEPTED] * 3


async def test_once_decided_a_late_claim_is_refused_as_on_one_server(rivals, events):
    await rivals[0].publish("headway.event.lease.worker-0", headers=fence("lease", 0))

    late = await verdict(rivals[1], "headway.event.lease.worker-1", fence("lease", 0))

    assert late in {WRONG_LAST_SEQUENCE, UNDECIDED}


async def test_here_the_message_id_is_checked_before_the_expected_sequence(rivals, events):
    headers = fence("lease", 0) | {"Nats-Msg-Id": "claim"}
    first = await rivals[0].publish("headway.event.lease.worker", headers=headers)
    again = await rivals[1].publish("headway.event.lease.worker", headers=headers)

    assert again.duplicate
    assert again.seq == first.seq


async def test_a_message_id_in_flight_may_be_refused_as_undecided(rivals, events):
    headers = {"Nats-Msg-Id": "event"}

    codes = await asyncio.gather(
        *(verdict(worker, "headway.event.lease.worker", headers) for worker in rivals)
    )

    assert ACCEPTED in codes
    assert set(codes) <= {ACCEPTED, MESSAGE_ID_UNDECIDED}
    assert (await rivals[0].stream_info(events)).state.messages == 1


async def test_rival_orders_on_one_subject_are_stored_once(rivals, runs):
    codes = await asyncio.gather(*(verdict(relay, "headway.run.job.lease", {}) for relay in rivals))

    assert sorted(codes, key=str) == [STORE_FAILED, STORE_FAILED, ACCEPTED]
    assert await stored_of_each_subject(rivals[0], runs) == {"headway.run.job.lease": 1}


async def test_here_a_full_stream_says_so_even_of_an_order_that_is_stored(rivals, runs):
    await rivals[0].publish("headway.run.job.one")
    with pytest.raises(ServiceUnavailableError, match="maximum messages per subject exceeded"):
        await rivals[0].publish("headway.run.job.one")
    await rivals[0].publish("headway.run.job.two")

    with pytest.raises(ServiceUnavailableError, match="maximum messages exceeded"):
        await rivals[0].publish("headway.run.job.one")


async def test_a_waiting_pull_ends_with_409_when_the_durable_changes_its_leader(
    members, rivals, runs
):
    await rivals[0].add_consumer(runs, durable_name="worker")
    # Until its leader has answered here once, a pull may still be answered with 503.
    await rivals[0].consumer_info(runs, "worker")
    inbox = members[0].new_inbox()
    answers = await members[0].subscribe(inbox)
    await members[0].publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{runs}.worker", b'{"batch": 1, "expires": 60000000000}', inbox
    )
    await until_waiting(rivals[0], runs, "worker")
    await members[0].request(f"$JS.API.CONSUMER.LEADER.STEPDOWN.{runs}.worker", timeout=5)

    end = await answers.next_msg(timeout=5)

    assert end.headers == {"Status": "409", "Description": "Leadership Change"}


async def test_here_too_a_reset_brings_at_once_what_was_left_behind(
    rivals, events, nats_cluster_url
):
    await rivals[0].add_consumer(events, durable_name="projector", ack_wait=30)
    await rivals[0].consumer_info(events, "projector")
    for number in range(5):
        await rivals[number % 3].publish(f"headway.event.lease.w{number}", str(number).encode())
    gone, successor = [
        await Broker.connect(nats_cluster_url, name=name) for name in ("gone", "successor")
    ]
    left = await _all_of(Puller(gone, events, "projector"), 5)
    await ack(gone, left[:2])
    async with asyncio.timeout(10):
        while (await rivals[0].consumer_info(events, "projector")).num_ack_pending != 3:
            await asyncio.sleep(0.01)
    await gone.close()
    async with asyncio.timeout(10):
        while not await take_over(successor, events, "projector"):
            await asyncio.sleep(0.05)
    again = await _all_of(Puller(successor, events, "projector"), 3)
    assert [message.sequence for message in again] == [3, 4, 5]
    await successor.close()


async def _all_of(puller: Puller, count: int) -> list[Message]:
    messages: list[Message] = []
    async with asyncio.timeout(10):
        while len(messages) < count:
            messages += await puller.fetch(count - len(messages))
    return messages


async def until_waiting(worker: JetStreamContext, stream: str, durable: str) -> None:
    async with asyncio.timeout(5):
        while True:
            consumer: ConsumerInfo = await worker.consumer_info(stream, durable)
            if consumer.num_waiting:
                break
            await asyncio.sleep(0.01)
