"""Facts that our puller rests on: a pull request on core NATS and every answer to it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from headway_embedded import NatsServer
from headway_jetstream_kit import Broker, Puller
from headway_jetstream_kit.provisioning import consumer_info
from headway_jetstream_kit.pull import ack
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerInfo, RetentionPolicy

pytestmark = pytest.mark.thorough

DURABLE = "worker-job"
SECOND = 1_000_000_000


@pytest.fixture(autouse=True)
async def runs(jetstream: JetStreamContext, new_name: Callable[[str], str]) -> str:
    """A work queue with a durable that redelivers soon."""
    name = new_name("HEADWAY_RUNS")
    await jetstream.add_stream(
        name=name, subjects=["headway.run.*.*"], retention=RetentionPolicy.WORK_QUEUE
    )
    await jetstream.add_consumer(name, durable_name=DURABLE, ack_wait=0.2)
    return name


@asynccontextmanager
async def pull(
    connection: Client, stream: str, durable: str = DURABLE, **request: int | bool
) -> AsyncIterator[Subscription]:
    """Send one pull request, and hand out the inbox that its answers come to."""
    inbox = connection.new_inbox()
    answers = await connection.subscribe(inbox)
    await connection.publish(
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{durable}", json.dumps(request).encode(), reply=inbox
    )
    yield answers
    await answers.unsubscribe()


async def next_answer(answers: Subscription) -> Msg:
    return await answers.next_msg(timeout=5)


async def next_status(answers: Subscription) -> tuple[str, str]:
    """The next answer, which must be a status and not a message of the stream."""
    answer = await next_answer(answers)
    assert answer.headers is not None
    assert (answer.data, answer.reply) == (b"", "")
    return answer.headers["Status"], answer.headers.get("Description", "")


async def fill(jetstream: JetStreamContext, *leases: str) -> None:
    for lease in leases:
        await jetstream.publish(f"headway.run.job.{lease}", lease.encode())


async def until_waiting(jetstream: JetStreamContext, runs: str) -> None:
    """A pull is queued behind the connection: one that meets a deletion there is never answered."""
    async with asyncio.timeout(5):
        while True:
            consumer: ConsumerInfo = await jetstream.consumer_info(runs, DURABLE)
            if consumer.num_waiting:
                break
            await asyncio.sleep(0.01)


async def test_a_batch_comes_as_single_messages_that_say_how_to_ack_them(
    connection, jetstream, runs
):
    await fill(jetstream, "one", "two")

    async with pull(connection, runs, batch=2, expires=5 * SECOND) as answers:
        first, second = [await next_answer(answers) for _ in range(2)]

    assert (first.subject, second.subject) == ("headway.run.job.one", "headway.run.job.two")
    assert first.reply.startswith(f"$JS.ACK.{runs}.{DURABLE}.1.1.1.")


async def test_an_explicit_ack_frees_only_its_own_message(connection, jetstream, runs):
    await fill(jetstream, "one", "two", "three")
    async with pull(connection, runs, batch=3, expires=5 * SECOND) as answers:
        _, second, _ = [await next_answer(answers) for _ in range(3)]
        await second.ack_sync()

    async with pull(connection, runs, batch=2, expires=5 * SECOND) as answers:
        again = [await next_answer(answers) for _ in range(2)]

    assert [message.data for message in again] == [b"one", b"three"]
    assert [message.metadata.num_delivered for message in again] == [2, 2]


async def test_an_ack_of_all_swallows_what_another_puller_holds(
    connection, jetstream, runs, new_name
):
    await jetstream.delete_stream(runs)
    limits = new_name("LIMITS")
    await jetstream.add_stream(name=limits, subjects=["headway.run.*.*"])
    await jetstream.add_consumer(limits, durable_name=DURABLE, ack_policy=AckPolicy.ALL)
    await fill(jetstream, "one", "two")
    async with (
        pull(connection, limits, batch=1, expires=5 * SECOND) as one,
        pull(connection, limits, batch=1, expires=5 * SECOND) as other,
    ):
        await next_answer(one)
        await (await next_answer(other)).ack_sync()

    consumer: ConsumerInfo = await jetstream.consumer_info(limits, DURABLE)
    assert consumer.num_ack_pending == 0


async def test_a_negative_ack_with_a_delay_redelivers_after_it(connection, jetstream, runs):
    await fill(jetstream, "one")
    clock = asyncio.get_running_loop()
    async with pull(connection, runs, batch=2, expires=5 * SECOND) as answers:
        await (await next_answer(answers)).nak(delay=0.4)
        refused_at = clock.time()
        again = await next_answer(answers)

    assert again.metadata.num_delivered == 2
    assert clock.time() - refused_at > 0.35


async def test_an_expired_pull_ends_with_408_and_says_how_many_it_still_wanted(
    connection, jetstream, runs
):
    await fill(jetstream, "one")

    async with pull(connection, runs, batch=3, expires=SECOND // 10) as answers:
        await next_answer(answers)
        end = await next_answer(answers)

    assert end.headers is not None
    assert (end.headers["Status"], end.headers["Description"]) == ("408", "Request Timeout")
    assert end.headers["Nats-Pending-Messages"] == "2"


async def test_a_waiting_pull_sends_idle_heartbeats_with_100(connection, runs):
    async with pull(
        connection, runs, batch=1, expires=SECOND // 2, idle_heartbeat=SECOND // 10
    ) as answers:
        statuses = [await next_status(answers)]
        while statuses[-1][0] == "100":
            statuses.append(await next_status(answers))

    assert set(statuses[:-1]) == {("100", "Idle Heartbeat")}
    assert statuses[-1] == ("408", "Request Timeout")


async def test_a_heartbeat_must_be_at_most_half_of_the_expiry(connection, runs):
    expires, half = SECOND // 5, SECOND // 10

    async with pull(connection, runs, batch=1, expires=expires, idle_heartbeat=half) as answers:
        assert (await next_status(answers))[0] in {"100", "408"}
    async with pull(connection, runs, batch=1, expires=expires, idle_heartbeat=half + 1) as answers:
        assert await next_status(answers) == ("400", "Bad Request - heartbeat value too large")


async def test_a_pull_without_waiting_ends_with_404_when_there_is_nothing(connection, runs):
    async with pull(connection, runs, batch=1, no_wait=True) as answers:
        assert await next_status(answers) == ("404", "No Messages")


@pytest.mark.parametrize("missing", ["durable", "stream"])
async def test_a_pull_from_what_does_not_exist_ends_with_503_at_once(connection, runs, missing):
    stream, durable = (runs, "worker-missing") if missing == "durable" else ("MISSING", DURABLE)

    async with asyncio.timeout(5):
        async with pull(connection, stream, durable, batch=1, expires=60 * SECOND) as answers:
            status, _ = await next_status(answers)

    assert status == "503"


async def test_a_waiting_pull_ends_with_409_when_its_durable_is_deleted(
    connection, jetstream, runs
):
    async with pull(connection, runs, batch=1, expires=60 * SECOND) as answers:
        await until_waiting(jetstream, runs)
        await jetstream.delete_consumer(runs, DURABLE)

        assert await next_status(answers) == ("409", "Consumer Deleted")


async def test_a_waiting_pull_ends_with_409_when_its_stream_is_deleted(connection, jetstream, runs):
    async with pull(connection, runs, batch=1, expires=60 * SECOND) as answers:
        await until_waiting(jetstream, runs)
        await jetstream.delete_stream(runs)

        assert await next_status(answers) == ("409", "Consumer Deleted")


async def test_a_pull_above_max_waiting_ends_with_409(connection, jetstream, runs):
    await jetstream.delete_consumer(runs, DURABLE)
    await jetstream.add_consumer(runs, durable_name=DURABLE, max_waiting=1)

    async with (
        pull(connection, runs, batch=1, expires=60 * SECOND),
        pull(connection, runs, batch=1, expires=60 * SECOND) as surplus,
    ):
        assert await next_status(surplus) == ("409", "Exceeded MaxWaiting")


async def test_a_pull_whose_puller_is_gone_takes_no_message(connection, jetstream, runs):
    async with pull(connection, runs, batch=1, expires=60 * SECOND):
        await until_waiting(jetstream, runs)
    await fill(jetstream, "one")

    async with pull(connection, runs, batch=1, expires=5 * SECOND) as answers:
        assert (await next_answer(answers)).metadata.num_delivered == 1


async def test_the_newer_form_of_acks_is_read_and_answered_as_well(tmp_path):
    """It carries domain and account in front; a server has it behind a flag since 2.14."""
    server = NatsServer(tmp_path / "nats", config_extra="feature_flags { js_ack_fc_v2: true }")
    await server.start()
    broker = await Broker.connect(server.url, name="test")
    await broker.api("STREAM.CREATE.NEWER", {"name": "NEWER", "subjects": ["newer.*"]})
    config = {"durable_name": "d", "ack_policy": "explicit"}
    await broker.api("CONSUMER.DURABLE.CREATE.NEWER.d", {"stream_name": "NEWER", "config": config})
    await broker.client.request("newer.a", b"hi")
    [message] = await Puller(broker, "NEWER", "d").fetch(1)
    assert len(message.reply.split(".")) > 9
    assert (message.sequence, message.deliveries, message.body) == (1, 1, b"hi")
    await ack(broker, [message])
    async with asyncio.timeout(10):
        while (await consumer_info(broker, "NEWER", "d"))["ack_floor"]["stream_seq"] != 1:
            await asyncio.sleep(0.01)
    await broker.close()
    await server.stop()
