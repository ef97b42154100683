"""taskiq-nats: jobs in a JetStream, acknowledged after they ran; no results are kept."""

import asyncio
import os
import sys

from nats.js.api import ConsumerConfig
from recorder import NATS, record
from taskiq.serializers import ORJSONSerializer
from taskiq_nats import PullBasedJetStreamBroker

BATCH = 500
broker = PullBasedJetStreamBroker(
    NATS,
    pull_consume_batch=BATCH,
    pull_consume_timeout=1,
    consumer_config=ConsumerConfig(durable_name="taskiq_durable", max_ack_pending=10_000),
).with_serializer(ORJSONSerializer())


@broker.task
async def nothing(number: int, sent: float, pad: str) -> None:
    record(sent)


async def connect():
    await broker.startup()
    return broker


async def setup():
    await (await connect()).shutdown()


async def enqueue(_, jobs):
    """Publish all at once: there is no call for many."""
    await asyncio.gather(*(nothing.kiq(**job) for job in jobs))


async def send(_, job):
    await nothing.kiq(**job)


async def pending(connected):
    consumer = await connected.js.consumer_info("taskiq_jetstream", "taskiq_durable")
    return consumer.num_pending + consumer.num_ack_pending


def worker():
    command = [sys.executable, "-m", "taskiq", "worker", "--workers", "1"]
    command += ["--ack-type", "when_executed", "--max-async-tasks", "1000"]
    command += ["--max-prefetch", str(BATCH), "--log-level", "WARNING", "taskiq_nats_:broker"]
    os.execv(sys.executable, command)
