"""State of the NATS streams and consumers, and the services that respond."""

import asyncio
from datetime import datetime
from typing import Any

import msgspec
from headway_contract import subjects
from headway_jetstream_kit import Broker, BrokerUnavailable, Msg, NatsError
from headway_jetstream_kit.connection import ApiError
from msgspec import Struct, field

_ANSWER_SECONDS = 2.0
# Running services respond within milliseconds.
_GATHER_SECONDS = 0.3
_ASK_ALL = "$SRV.INFO"
# A stream may have one consumer per job; only the first ones are shown.
_MAX_CONSUMERS = 256
STREAMS = (
    *(subjects.WORK_STREAM, subjects.RUNS_STREAM),
    *(subjects.EVENTS_STREAM, subjects.SETTLED_STREAM),
)


class Delivered(Struct, frozen=True):
    """The last delivery of a consumer."""

    last_active: datetime | None = None


class Consumer(Struct, frozen=True, kw_only=True):
    """A consumer with its pending and unacknowledged messages, as NATS reports it."""

    name: str
    pending: int = field(name="num_pending", default=0)
    unacknowledged: int = field(name="num_ack_pending", default=0)
    redelivered: int = field(name="num_redelivered", default=0)
    delivered: Delivered | None = None


class StreamStatus(Struct, frozen=True, kw_only=True):
    """A stream; `problem` says why it could not be read."""

    name: str
    messages: int = 0
    bytes: int = 0
    limit: int = 0
    consumers: list[Consumer] = []
    consumers_in_all: int = 0
    replicas: int = 1
    problem: str = ""


class Answering(Struct, frozen=True, kw_only=True):
    """A responding service: its processes and versions."""

    name: str
    processes: int
    versions: list[str]
    endpoints: int


class _Info(Struct, frozen=True):
    name: str
    id: str
    version: str = ""
    endpoints: list[Any] = []


async def read_streams(broker: Broker) -> list[StreamStatus]:
    """Read the streams, in the order of the flow of work."""
    return list(await asyncio.gather(*(_read_stream(broker, name) for name in STREAMS)))


async def _read_stream(broker: Broker, name: str) -> StreamStatus:
    try:
        info = await broker.api(f"STREAM.INFO.{name}", timeout=_ANSWER_SECONDS)
        listed = await broker.api(f"CONSUMER.LIST.{name}", timeout=_ANSWER_SECONDS)
    except (ApiError, BrokerUnavailable) as error:
        return StreamStatus(name=name, problem=str(error))
    consumers = msgspec.convert(listed.get("consumers") or [], list[Consumer])
    return StreamStatus(
        name=name,
        messages=info["state"]["messages"],
        bytes=info["state"]["bytes"],
        limit=max(0, info["config"].get("max_bytes", 0)),
        replicas=info["config"].get("num_replicas", 1),
        consumers=sorted(consumers, key=lambda consumer: consumer.name)[:_MAX_CONSUMERS],
        consumers_in_all=info["state"].get("consumer_count", len(consumers)),
    )


async def read_services(broker: Broker) -> list[Answering]:
    """List the services that respond now."""
    found: dict[str, dict[str, _Info]] = {}
    inbox = broker.client.new_inbox()

    async def receive(message: Msg) -> None:
        try:
            info = msgspec.json.decode(message.data, type=_Info)
        except msgspec.DecodeError:
            return  # not a Headway service
        if info.name.startswith("headway"):
            found.setdefault(info.name, {})[info.id] = info

    try:
        subscription = await broker.client.subscribe(inbox, cb=receive)
        try:
            await broker.client.publish(_ASK_ALL, reply=inbox)
            await asyncio.sleep(_GATHER_SECONDS)
        finally:
            await subscription.unsubscribe()
    except (OSError, NatsError):
        return []
    return [
        Answering(
            name=name,
            processes=len(infos),
            versions=sorted({info.version for info in infos.values()}),
            endpoints=max(len(info.endpoints) for info in infos.values()),
        )
        for name, infos in sorted(found.items())
    ]
