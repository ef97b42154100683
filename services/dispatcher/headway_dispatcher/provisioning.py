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
STREAMS: dict[str, tuple[str, dict[str, Any]]] = {
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


class NotProvisioned(ConsumerMissing):
    """Streams or consumers are missing, and this process may not create them."""


def streams(settings: DispatcherSettings, *, storage: Storage = "file") -> list[Stream]:
    """Return all streams with their configuration."""
    shared = {
        "storage": storage,
        "num_replicas": settings.stream_replicas,
        "max_bytes": settings.stream_max_bytes,
        "max_age": round(settings.stream_max_age_days * 86_400 * _SECOND),
    }
    return [
        Stream(name=name, config={**shared, "subjects": [accepted], **own})
        for name, (accepted, own) in STREAMS.items()
    ]


def consumers(settings: DispatcherSettings) -> list[Consumer]:
    """Return the services' own consumers; `job_consumers` creates those of jobs."""
    names = {
        subjects.WORK_STREAM: subjects.WORK_CONSUMER,
        subjects.EVENTS_STREAM: subjects.EVENTS_CONSUMER,
        subjects.SETTLED_STREAM: subjects.SETTLED_CONSUMER,
    }
    return [_consumer(stream, name, STREAMS[stream][0], settings) for stream, name in names.items()]


def job_consumer(job: str, settings: DispatcherSettings) -> Consumer:
    """Return the durable consumer that all workers of a job share."""
    name = subjects.worker_consumer(job)
    return _consumer(subjects.RUNS_STREAM, name, subjects.orders_of(job), settings)


def _consumer(
    stream: str, name: str, filter_subject: str, settings: DispatcherSettings
) -> Consumer:
    return Consumer(
        stream=stream,
        name=name,
        config={
            "filter_subject": filter_subject,
            "ack_policy": "explicit",
            "ack_wait": round(settings.stream_ack_wait_seconds * _SECOND),
            "max_deliver": -1,
            "max_ack_pending": settings.stream_max_ack_pending,
            "max_waiting": MAX_WAITING,
            "deliver_policy": "all",
        },
    )


async def provision_by(
    broker: Broker, settings: DispatcherSettings, *, storage: Storage = "file"
) -> list[str]:
    """Create or update streams and consumers by the settings; returns the changed names."""
    changed = [
        stream.name
        for stream in streams(settings, storage=storage)
        if await provisioning.ensure_stream(broker, stream)
    ]
    return changed + [
        f"{consumer.stream}/{consumer.name}"
        for consumer in consumers(settings)
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
    broker: Broker, settings: DispatcherSettings, jobs: Sequence[str] = ()
) -> list[Inspected]:
    """Compare every stream and consumer with the settings; `jobs` have a consumer each."""
    found = []
    for stream in streams(settings):
        info = await provisioning.stream_info(broker, stream.name)
        differs = {} if info is None else provisioning.differences(info["config"], stream.config)
        found.append(Inspected(kind="stream", name=stream.name, info=info, differs=differs))
    for consumer in (*consumers(settings), *(job_consumer(job, settings) for job in jobs)):
        name = f"{consumer.stream}/{consumer.name}"
        info = await provisioning.consumer_info(broker, consumer.stream, consumer.name)
        differs = {} if info is None else provisioning.differences(info["config"], consumer.config)
        found.append(Inspected(kind="consumer", name=name, info=info, differs=differs))
    return found


async def check_provisioned(broker: Broker, settings: DispatcherSettings) -> None:
    """Raise with the names of missing streams, and of missing consumers of other streams."""
    missing: list[str] = []
    for item in await inspect_provisioned(broker, settings):
        if item.info is None and item.name.partition("/")[0] not in missing:
            missing.append(item.name)
    if missing:
        raise NotProvisioned(
            f"NATS lacks {', '.join(missing)}: run 'headway provision', or let the dispatcher "
            "do it with HEADWAY_PROVISION=auto"
        )
