"""The streams and consumers of Headway: their configuration, creation and comparison."""

from collections.abc import Sequence
from typing import Any, Literal

from headway_contract import subjects
from headway_jetstream_kit import Broker, Consumer, ConsumerMissing, Stream, provisioning
from msgspec import Struct

from headway_dispatcher.settings import DispatcherSettings

_SECOND = 1_000_000_000
MAX_WAITING = 10_000  # pulls at once: each worker has one for each of its jobs

Storage = Literal["file", "memory"]

# The subjects and the own configuration of each stream.
_STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
    subjects.WORK_STREAM: (subjects.WORK_SUBJECTS, {"retention": "workqueue", "discard": "new"}),
    subjects.RUNS_STREAM: (
        subjects.RUNS_SUBJECTS,
        {
            "retention": "workqueue",
            "discard": "new",
            "discard_new_per_subject": True,
            "max_msgs_per_subject": 1,
        },
    ),
    subjects.EVENTS_STREAM: (subjects.EVENTS_SUBJECTS, {"retention": "limits", "discard": "new"}),
    subjects.SETTLED_STREAM: (subjects.SETTLED_SUBJECTS, {"retention": "limits", "discard": "old"}),
}


class Delivery(Struct, frozen=True, kw_only=True):
    """How long a message may stay unacknowledged, and how many messages of a consumer may."""

    ack_wait_seconds: float = 30.0
    max_ack_pending: int = 10_000


_DEFAULT_DELIVERY = Delivery()


class NotProvisioned(ConsumerMissing):
    """Streams or consumers are missing, and this process may not create them."""


def delivery_of(settings: DispatcherSettings) -> Delivery:
    """Return the delivery that the settings demand."""
    return Delivery(
        ack_wait_seconds=settings.stream_ack_wait_seconds,
        max_ack_pending=settings.stream_max_ack_pending,
    )


def renew_seconds(settings: DispatcherSettings) -> float:
    """Return the interval for renewing a lease, so that its last message never expires."""
    return settings.stream_max_age_days * 86_400 / 4


def streams(
    *, replicas: int, max_bytes: int, max_age_days: float = 7.0, storage: Storage = "file"
) -> list[Stream]:
    """Return all streams with their configuration."""
    shared = {
        "storage": storage,
        "num_replicas": replicas,
        "max_bytes": max_bytes,
        "max_age": round(max_age_days * 86_400 * _SECOND),
    }
    return [
        Stream(name=name, config={**shared, "subjects": [accepted], **own})
        for name, (accepted, own) in _STREAMS.items()
    ]


def consumers(delivery: Delivery = _DEFAULT_DELIVERY) -> list[Consumer]:
    """Return the services' own consumers; `job_consumers` creates those of jobs."""
    names = {
        subjects.WORK_STREAM: subjects.WORK_CONSUMER,
        subjects.EVENTS_STREAM: subjects.EVENTS_CONSUMER,
        subjects.SETTLED_STREAM: subjects.SETTLED_CONSUMER,
    }
    return [
        _consumer(stream, name, _STREAMS[stream][0], delivery) for stream, name in names.items()
    ]


def job_consumer(job: str, delivery: Delivery = _DEFAULT_DELIVERY) -> Consumer:
    """Return the durable consumer that all workers of a job share."""
    name = subjects.worker_consumer(job)
    return _consumer(subjects.RUNS_STREAM, name, subjects.orders_of(job), delivery)


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


def _stream_options(settings: DispatcherSettings) -> dict[str, Any]:
    return {
        "replicas": settings.stream_replicas,
        "max_bytes": settings.stream_max_bytes,
        "max_age_days": settings.stream_max_age_days,
    }


async def provision_by(broker: Broker, settings: DispatcherSettings) -> list[str]:
    """Create or update streams and consumers by the settings; returns the changed names."""
    return await provision(broker, delivery=delivery_of(settings), **_stream_options(settings))


async def provision(
    broker: Broker, *, delivery: Delivery = _DEFAULT_DELIVERY, **options: Any
) -> list[str]:
    """Create or update streams (with the `options` of `streams`) and consumers."""
    wanted = streams(**options)
    changed = [stream.name for stream in wanted if await provisioning.ensure_stream(broker, stream)]
    return changed + [
        f"{consumer.stream}/{consumer.name}"
        for consumer in consumers(delivery)
        if await provisioning.ensure_consumer(broker, consumer)
    ]


class Inspected(Struct, frozen=True, kw_only=True):
    """The report of NATS about a stream or consumer, and the differing part of its configuration.

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
    found = []
    for stream in streams(**_stream_options(settings)):
        info = await provisioning.stream_info(broker, stream.name)
        differs = {} if info is None else provisioning.differences(info["config"], stream.config)
        found.append(Inspected(kind="stream", name=stream.name, info=info, differs=differs))
    for consumer in (*consumers(delivery), *(job_consumer(job, delivery) for job in jobs)):
        name = f"{consumer.stream}/{consumer.name}"
        info = await provisioning.consumer_info(broker, consumer.stream, consumer.name)
        differs = {} if info is None else provisioning.differences(info["config"], consumer.config)
        found.append(Inspected(kind="consumer", name=name, info=info, differs=differs))
    return found


async def check_provisioned(broker: Broker) -> None:
    """Raise with the names of missing streams, and of missing consumers of other streams."""
    missing = [name for name in _STREAMS if await provisioning.stream_info(broker, name) is None]
    missing += [
        f"{consumer.stream}/{consumer.name}"
        for consumer in consumers()
        if consumer.stream not in missing
        and await provisioning.consumer_info(broker, consumer.stream, consumer.name) is None
    ]
    if missing:
        raise NotProvisioned(
            f"NATS lacks {', '.join(missing)}: run 'headway provision', or let the dispatcher "
            "do it with HEADWAY_PROVISION=auto"
        )
