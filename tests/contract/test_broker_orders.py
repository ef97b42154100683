"""Facts that orders and the work queue rest on: retention, refusals when full, withdrawal."""

from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerInfo, DiscardPolicy, PubAck, RetentionPolicy
from nats.js.errors import APIError, BadRequestError, ServiceUnavailableError

pytestmark = pytest.mark.thorough

STORE_FAILED = 10077
FILTER_NOT_UNIQUE = 10100
EXPLICIT_ACK_REQUIRED = 10098
ALREADY_STORED = "maximum messages per subject exceeded"


@pytest.fixture(autouse=True)
async def runs(jetstream: JetStreamContext, new_name: Callable[[str], str]) -> str:
    """The stream of orders, with room for three."""
    name = new_name("HEADWAY_RUNS")
    await jetstream.add_stream(
        name=name,
        subjects=["headway.run.*.*"],
        retention=RetentionPolicy.WORK_QUEUE,
        discard=DiscardPolicy.NEW,
        discard_new_per_subject=True,
        max_msgs_per_subject=1,
        max_msgs=3,
    )
    return name


def store_failed(description: str) -> Callable[[APIError], bool]:
    """Whether a refusal is the one code that means several things, with this meaning."""

    def matches(refusal: APIError) -> bool:
        seen = (refusal.code, refusal.err_code, refusal.description)
        return seen == (503, STORE_FAILED, description)

    return matches


@pytest.fixture
def work(new_name: Callable[[str], str]) -> str:
    """The name of a stream that the test creates."""
    return new_name("HEADWAY_WORK")


async def add_work_stream(jetstream: JetStreamContext, work: str, **settings: Any) -> None:
    await jetstream.add_stream(
        name=work, subjects=["headway.work.*"], discard=DiscardPolicy.NEW, **settings
    )


async def add_worker(
    jetstream: JetStreamContext, runs: str, job: str, ack_wait: float = 30
) -> JetStreamContext.PullSubscription:
    name = f"worker-{job}"
    await jetstream.add_consumer(
        runs, durable_name=name, filter_subject=f"headway.run.{job}.*", ack_wait=ack_wait
    )
    return await jetstream.pull_subscribe_bind(name, runs)


async def order(
    jetstream: JetStreamContext, lease: str, job: str = "job", message_id: str | None = None
) -> PubAck:
    headers = None if message_id is None else {"Nats-Msg-Id": message_id}
    return await jetstream.publish(f"headway.run.{job}.{lease}", lease.encode(), headers=headers)


async def stored(jetstream: JetStreamContext, stream: str) -> int:
    return (await jetstream.stream_info(stream)).state.messages


def bodies(messages: list[Msg]) -> list[bytes]:
    return [message.data for message in messages]


async def test_a_work_queue_is_freed_by_acks_and_refuses_while_full(jetstream, work):
    await add_work_stream(jetstream, work, retention=RetentionPolicy.WORK_QUEUE, max_msgs=2)
    intake = await jetstream.pull_subscribe("headway.work.*", "dispatcher", work)
    for _ in range(2):
        await jetstream.publish("headway.work.group")

    with pytest.raises(ServiceUnavailableError, check=store_failed("maximum messages exceeded")):
        await jetstream.publish("headway.work.group")
    for message in await intake.fetch(2):
        await message.ack_sync()

    assert await stored(jetstream, work) == 0
    await jetstream.publish("headway.work.group")


async def test_with_limits_retention_acks_free_nothing_and_a_full_stream_stays_full(
    jetstream, work
):
    await add_work_stream(jetstream, work, retention=RetentionPolicy.LIMITS, max_msgs=2)
    intake = await jetstream.pull_subscribe("headway.work.*", "dispatcher", work)
    for _ in range(2):
        await jetstream.publish("headway.work.group")
    for message in await intake.fetch(2):
        await message.ack_sync()

    assert await stored(jetstream, work) == 2
    with pytest.raises(ServiceUnavailableError, check=store_failed("maximum messages exceeded")):
        await jetstream.publish("headway.work.group")


async def test_a_stream_full_of_bytes_refuses_with_the_same_code(jetstream, work):
    await add_work_stream(jetstream, work, max_bytes=1000)

    with pytest.raises(ServiceUnavailableError, check=store_failed("maximum bytes exceeded")):
        await jetstream.publish("headway.work.group", bytes(1000))


async def test_an_order_that_is_still_stored_is_refused_until_it_is_acked(jetstream, runs):
    worker = await add_worker(jetstream, runs, "job")
    await order(jetstream, "lease")

    with pytest.raises(ServiceUnavailableError, check=store_failed(ALREADY_STORED)):
        await order(jetstream, "lease")
    [delivered] = await worker.fetch(1)
    with pytest.raises(ServiceUnavailableError, check=store_failed(ALREADY_STORED)):
        await order(jetstream, "lease")
    await delivered.ack_sync()

    await order(jetstream, "lease")


async def test_only_the_description_tells_a_stored_order_from_a_full_stream(jetstream):
    for lease in ("one", "two", "three"):
        await order(jetstream, lease)

    with pytest.raises(ServiceUnavailableError, check=store_failed(ALREADY_STORED)):
        await order(jetstream, "three")
    with pytest.raises(ServiceUnavailableError, check=store_failed("maximum messages exceeded")):
        await order(jetstream, "four")


async def test_an_order_with_a_known_message_id_is_swallowed_even_after_its_ack(jetstream, runs):
    worker = await add_worker(jetstream, runs, "job")
    await order(jetstream, "lease", message_id="order")
    assert (await order(jetstream, "lease", message_id="order")).duplicate
    [delivered] = await worker.fetch(1)
    await delivered.ack_sync()

    assert (await order(jetstream, "lease", message_id="order")).duplicate
    assert await stored(jetstream, runs) == 0
    assert not (await order(jetstream, "lease", message_id="fresh")).duplicate


async def test_each_job_has_its_own_durable_and_gets_only_its_own_orders(jetstream, runs):
    mail = await add_worker(jetstream, runs, "mail")
    report = await add_worker(jetstream, runs, "report")
    await order(jetstream, "first", job="mail")
    await order(jetstream, "second", job="report")
    await order(jetstream, "third", job="mail")

    assert bodies(await mail.fetch(2)) == [b"first", b"third"]
    assert bodies(await report.fetch(1)) == [b"second"]


async def test_two_durables_for_the_same_orders_are_refused(jetstream, runs):
    await add_worker(jetstream, runs, "job")

    with pytest.raises(BadRequestError, check=lambda each: each.err_code == FILTER_NOT_UNIQUE):
        await jetstream.add_consumer(
            runs, durable_name="second", filter_subject="headway.run.job.*"
        )


async def test_creating_a_durable_again_is_accepted_and_keeps_its_progress(jetstream, runs):
    worker = await add_worker(jetstream, runs, "job")
    await order(jetstream, "lease")
    await worker.fetch(1)

    again: ConsumerInfo = await (await add_worker(jetstream, runs, "job")).consumer_info()

    assert again.num_ack_pending == 1


async def test_an_order_published_before_its_durable_exists_is_kept_and_delivered(jetstream, runs):
    await order(jetstream, "lease")
    worker = await add_worker(jetstream, runs, "job")

    assert bodies(await worker.fetch(1)) == [b"lease"]


async def test_purging_an_order_withdraws_it_although_it_was_delivered(jetstream, runs):
    worker = await add_worker(jetstream, runs, "job", ack_wait=0.2)
    await order(jetstream, "withdrawn")
    await order(jetstream, "kept")
    withdrawn, _ = await worker.fetch(2)

    await jetstream.purge_stream(runs, subject="headway.run.job.withdrawn")
    [redelivered] = await worker.fetch(1)
    await redelivered.ack_sync()

    assert redelivered.data == b"kept"
    assert redelivered.metadata.num_delivered == 2
    consumer: ConsumerInfo = await worker.consumer_info()
    assert (consumer.num_pending, consumer.num_ack_pending) == (0, 0)
    await withdrawn.ack_sync()
    await order(jetstream, "withdrawn")


async def test_a_work_queue_accepts_only_explicit_acks(jetstream, runs):
    with pytest.raises(BadRequestError, check=lambda each: each.err_code == EXPLICIT_ACK_REQUIRED):
        await jetstream.add_consumer(
            runs,
            durable_name="worker-job",
            filter_subject="headway.run.job.*",
            ack_policy=AckPolicy.ALL,
        )
