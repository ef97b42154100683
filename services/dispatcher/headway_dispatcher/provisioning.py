"""The streams and consumers that Headway stands on."""

from collections.abc import Sequence
from typing import Any, Literal

from headway_contract import subjects
from headway_jetstream_kit import Broker, Consumer, ConsumerMissing, Stream
from headway_jetstream_kit.provisioning import (
    consumer_info,
    differences,
    ensure_consumer,
    ensure_stream,
    stream_info,
)
from msgspec import Struct

from headway_dispatcher.settings import DispatcherSettings

_SECOND = 1_000_000_000
MAX_WAITING = 10_000  # pulls at once: each worker keeps one a job

Storage = Literal["file", "memory"]


class Delivery(Struct, frozen=True, kw_only=True):
    """How messages are handed out: how long one may be on somebody's hands, and how many."""

    ack_wait_seconds: float = 30.0
    max_ack_pending: int = 10_000


_AS_USUAL = Delivery()


class NotProvisioned(ConsumerMissing):
    """Streams or consumers are missing, and this process may not make them."""


def delivery_of(settings: DispatcherSettings) -> Delivery:
    """How messages are handed out by the settings."""
    return Delivery(
        ack_wait_seconds=settings.stream_ack_wait_seconds,
        max_ack_pending=settings.stream_max_ack_pending,
    )


def renew_seconds(settings: DispatcherSettings) -> float:
    """How often a lease is to be heard of, so that its last message is never too old to keep."""
    return settings.stream_max_age_days * 86_400 / 4


def streams(
    *, replicas: int, max_bytes: int, max_age_days: float = 7.0, storage: Storage = "file"
) -> list[Stream]:
    """All streams, as they should be."""
    shared: dict[str, Any] = {
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": max_bytes,
        "max_age": round(max_age_days * 86_400 * _SECOND),
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


def consumers(delivery: Delivery = _AS_USUAL) -> list[Consumer]:
    """The services' own consumers. `job_consumers` makes those of jobs."""
    wanted = (
        (subjects.WORK_STREAM, subjects.WORK_CONSUMER, subjects.WORK_SUBJECTS),
        (subjects.EVENTS_STREAM, subjects.EVENTS_CONSUMER, subjects.EVENTS_SUBJECTS),
        (subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER, subjects.SETTLED_SUBJECTS),
    )
    return [_consumer(*one, delivery) for one in wanted]


def job_consumer(job: str, delivery: Delivery = _AS_USUAL) -> Consumer:
    """The durable that all workers of a job share."""
    name = subjects.worker_consumer(job)
    return _consumer(subjects.RUNS_STREAM, name, subjects.orders_of(job), delivery)


def streams_by(settings: DispatcherSettings) -> list[Stream]:
    """All streams, as the settings say."""
    return streams(
        replicas=settings.stream_replicas,
        max_bytes=settings.stream_max_bytes,
        max_age_days=settings.stream_max_age_days,
    )


async def provision_by(broker: Broker, settings: DispatcherSettings) -> list[str]:
    """Make or mend everything as the settings say; returns the names of what was touched."""
    return await provision(
        broker,
        replicas=settings.stream_replicas,
        max_bytes=settings.stream_max_bytes,
        max_age_days=settings.stream_max_age_days,
        delivery=delivery_of(settings),
    )


async def provision(
    broker: Broker,
    *,
    replicas: int,
    max_bytes: int,
    max_age_days: float = 7.0,
    storage: Storage = "file",
    delivery: Delivery = _AS_USUAL,
) -> list[str]:
    """Make or mend every stream and consumer; returns the names of those touched."""
    wanted = streams(
        replicas=replicas, max_bytes=max_bytes, max_age_days=max_age_days, storage=storage
    )
    touched = [stream.name for stream in wanted if await ensure_stream(broker, stream)]
    touched += [
        f"{consumer.stream}/{consumer.name}"
        for consumer in consumers(delivery)
        if await ensure_consumer(broker, consumer)
    ]
    return touched


class Inspected(Struct, frozen=True, kw_only=True):
    """A stream or consumer: what NATS reports of it, and how its configuration differs.

    `info` is `None` if it is missing. `differs` has the actual and the wanted value of settings.
    """

    kind: Literal["stream", "consumer"]
    name: str
    info: dict[str, Any] | None = None
    differs: dict[str, tuple[Any, Any]] = {}


async def inspect_provisioned(
    broker: Broker, settings: DispatcherSettings, jobs: Sequence[str]
) -> list[Inspected]:
    """Compare every stream and consumer with the settings; `jobs` have a consumer each."""
    delivery = delivery_of(settings)
    wanted = [*consumers(delivery), *(job_consumer(job, delivery) for job in jobs)]
    return await _inspect(broker, streams_by(settings), wanted)


async def _inspect(
    broker: Broker, streams: Sequence[Stream], consumers: Sequence[Consumer]
) -> list[Inspected]:
    found = [
        _compare("stream", stream.name, await stream_info(broker, stream.name), stream.config)
        for stream in streams
    ]
    return found + [
        _compare(
            "consumer",
            f"{consumer.stream}/{consumer.name}",
            await consumer_info(broker, consumer.stream, consumer.name),
            consumer.config,
        )
        for consumer in consumers
    ]


def _compare(
    kind: Literal["stream", "consumer"],
    name: str,
    info: dict[str, Any] | None,
    config: dict[str, Any],
) -> Inspected:
    if info is None:
        return Inspected(kind=kind, name=name)
    return Inspected(kind=kind, name=name, info=info, differs=differences(info["config"], config))


async def check_provisioned(broker: Broker) -> None:
    """Raise with the names of missing streams and consumers."""
    found = await _inspect(broker, streams(replicas=1, max_bytes=-1), consumers())
    absent = [item.name for item in found if item.info is None]
    missing = [name for name in absent if name.partition("/")[0] not in absent or "/" not in name]
    if missing:
        raise NotProvisioned(
            f"NATS lacks {', '.join(missing)}: run 'headway provision', or let the dispatcher "
            "do it with HEADWAY_PROVISION=auto"
        )


def _consumer(stream: str, name: str, filter_subject: str, delivery: Delivery) -> Consumer:
    return Consumer(
        stream=stream,
        name=name,
        config={
            "filter_subject": filter_subject,
            "ack_policy": "explicit",
            "ack_wait": round(delivery.ack_wait_seconds * _SECOND),
            "max_deliver": -1,
            "max_ack_pending": delivery.max_ack_pending,
            "max_waiting": MAX_WAITING,
            "deliver_policy": "all",
        },
    )
