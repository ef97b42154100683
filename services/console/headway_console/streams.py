"""State of the NATS streams and consumers, and the services that respond."""

import asyncio
from datetime import datetime
from typing import Any

import msgspec
from headway_contract import subjects
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.connection import ApiError
from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

_ANSWER_SECONDS = 2.0
# Running services respond within milliseconds.
_GATHER_SECONDS = 0.3
_ASK_ALL = "$SRV.INFO"


class Consumer(Struct, frozen=True, kw_only=True):
    """A consumer with its pending and unacknowledged messages."""

    name: str
    pending: int
    unacknowledged: int
    redelivered: int
    last_at: datetime | None


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


class _Endpoint(Struct, frozen=True):
    name: str = ""


class _Info(Struct, frozen=True):
    name: str
    id: str
    version: str = ""
    endpoints: list[_Endpoint] = []


STREAMS = (
    subjects.WORK_STREAM,
    subjects.RUNS_STREAM,
    subjects.EVENTS_STREAM,
    subjects.SETTLED_STREAM,
)
# A stream may have one consumer per job; only the first ones are shown.
_MAX_CONSUMERS = 256


async def read_streams(broker: Broker) -> list[StreamStatus]:
    """Read the streams, in the order of the flow of work."""
    return list(await asyncio.gather(*(_read_stream(broker, name) for name in STREAMS)))


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
    return [_answering(name, list(infos.values())) for name, infos in sorted(found.items())]


def _answering(name: str, infos: list[_Info]) -> Answering:
    return Answering(
        name=name,
        processes=len(infos),
        versions=sorted({info.version for info in infos}),
        endpoints=max(len(info.endpoints) for info in infos),
    )


async def _read_stream(broker: Broker, name: str) -> StreamStatus:
    try:
        info = await broker.api(f"STREAM.INFO.{name}", timeout=_ANSWER_SECONDS)
        listed = await broker.api(f"CONSUMER.LIST.{name}", timeout=_ANSWER_SECONDS)
    except (ApiError, BrokerUnavailable) as error:
        return StreamStatus(name=name, problem=str(error))
    consumers = sorted(listed.get("consumers") or [], key=lambda consumer: str(consumer["name"]))
    return StreamStatus(
        name=name,
        messages=info["state"]["messages"],
        bytes=info["state"]["bytes"],
        limit=max(0, info["config"].get("max_bytes", 0)),
        replicas=info["config"].get("num_replicas", 1),
        consumers=[_consumer(consumer) for consumer in consumers[:_MAX_CONSUMERS]],
        consumers_in_all=info["state"].get("consumer_count", len(consumers)),
    )


def _consumer(info: dict[str, Any]) -> Consumer:
    last = (info.get("delivered") or {}).get("last_active")
    return Consumer(
        name=info["name"],
        pending=info.get("num_pending", 0),
        unacknowledged=info.get("num_ack_pending", 0),
        redelivered=info.get("num_redelivered", 0),
        last_at=None if last is None else msgspec.convert(last, datetime, strict=False),
    )
