"""The streams and consumers that Headway stands on."""

from typing import Any, Literal

from headway_contract import subjects
from headway_jetstream_kit import Broker, Consumer, ConsumerMissing, Stream
from headway_jetstream_kit.provisioning import (
    consumer_info,
    ensure_consumer,
    ensure_stream,
    stream_info,
)

_SECOND = 1_000_000_000
MAX_AGE_SECONDS = 7 * 86_400
ACK_WAIT_SECONDS = 30
MAX_ACK_PENDING = 10_000
MAX_WAITING = 10_000  # pulls at once: each worker keeps one a job

Storage = Literal["file", "memory"]


class NotProvisioned(ConsumerMissing):
    """Streams or consumers are missing, and this process may not make them."""


def streams(*, replicas: int, max_bytes: int, storage: Storage = "file") -> list[Stream]:
    """All streams, as they should be."""
    shared: dict[str, Any] = {
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": max_bytes,
        "max_age": MAX_AGE_SECONDS * _SECOND,
    }
    return [
        Stream(
            name=subjects.WORK_STREAM,
            config={
                **shared,
                "subjects": [subjects.WORK_SUBJECTS],
                "retention": "workqueue",
                "discard": "new",
            },
        ),
        Stream(
            name=subjects.RUNS_STREAM,
            config={
                **shared,
                "subjects": [subjects.RUNS_SUBJECTS],
                "retention": "workqueue",
                "discard": "new",
                "discard_new_per_subject": True,
                "max_msgs_per_subject": 1,
            },
        ),
        Stream(
            name=subjects.EVENTS_STREAM,
            config={
                **shared,
                "subjects": [subjects.EVENTS_SUBJECTS],
                "retention": "limits",
                "discard": "new",
            },
        ),
        Stream(
            name=subjects.SETTLED_STREAM,
            config={
                **shared,
                "subjects": [subjects.SETTLED_SUBJECTS],
                "retention": "limits",
                "discard": "old",
            },
        ),
    ]


def consumers() -> list[Consumer]:
    """The services' own consumers. Those of workers are made when a job is first heard of."""
    return [
        _consumer(subjects.WORK_STREAM, subjects.WORK_CONSUMER, subjects.WORK_SUBJECTS),
        _consumer(subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER, subjects.EVENTS_SUBJECTS),
        _consumer(subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER, subjects.SETTLED_SUBJECTS),
    ]


def job_consumer(job: str) -> Consumer:
    """The durable that all workers of a job share."""
    return _consumer(subjects.RUNS_STREAM, subjects.worker_consumer(job), subjects.orders_of(job))


async def provision(
    broker: Broker, *, replicas: int, max_bytes: int, storage: Storage = "file"
) -> list[str]:
    """Make or mend every stream and consumer; returns the names of those touched."""
    touched = [
        stream.name
        for stream in streams(replicas=replicas, max_bytes=max_bytes, storage=storage)
        if await ensure_stream(broker, stream)
    ]
    touched += [
        f"{consumer.stream}/{consumer.name}"
        for consumer in consumers()
        if await ensure_consumer(broker, consumer)
    ]
    return touched


async def check_provisioned(broker: Broker) -> None:
    """Raise and name what is missing."""
    missing = [
        stream.name
        for stream in streams(replicas=1, max_bytes=-1)
        if await stream_info(broker, stream.name) is None
    ]
    missing += [
        f"{consumer.stream}/{consumer.name}"
        for consumer in consumers()
        if consumer.stream not in missing
        and await consumer_info(broker, consumer.stream, consumer.name) is None
    ]
    if missing:
        raise NotProvisioned(
            f"NATS lacks {', '.join(missing)}: run 'headway provision', or let the dispatcher "
            "do it with HEADWAY_PROVISION=auto"
        )


def _consumer(stream: str, name: str, filter_subject: str) -> Consumer:
    return Consumer(
        stream=stream,
        name=name,
        config={
            "filter_subject": filter_subject,
            "ack_policy": "explicit",
            "ack_wait": ACK_WAIT_SECONDS * _SECOND,
            "max_deliver": -1,
            "max_ack_pending": MAX_ACK_PENDING,
            "max_waiting": MAX_WAITING,
            "deliver_policy": "all",
        },
    )
