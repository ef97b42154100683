"""What NATS says of our streams and their consumers, and which of our services answer on it."""

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
# How long to wait for services that answer: those that run do so within milliseconds.
_GATHER_SECONDS = 0.3
_ASK_ALL = "$SRV.INFO"


class Consumer(Struct, frozen=True, kw_only=True):
    """A consumer: what waits for it, and what it has and has not acknowledged."""

    name: str
    pending: int
    unacknowledged: int
    redelivered: int
    last_at: datetime | None


class StreamStatus(Struct, frozen=True, kw_only=True):
    """A stream; `problem` says why nothing is known of it."""

    name: str
    messages: int = 0
    bytes: int = 0
    limit: int = 0
    consumers: list[Consumer] = []
    consumers_in_all: int = 0
    replicas: int = 1
    problem: str = ""


class Answering(Struct, frozen=True, kw_only=True):
    """A service that answers questions: how many processes of it, and their versions."""

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
# Of a stream with a consumer for each job, only so many are shown.
_MOST_CONSUMERS = 256


async def read_streams(broker: Broker) -> list[StreamStatus]:
    """Our streams, in the order in which work goes through them."""
    return list(await asyncio.gather(*(_read_stream(broker, name) for name in STREAMS)))


async def read_services(broker: Broker) -> list[Answering]:
    """Which services answer questions now."""
    found: dict[str, dict[str, _Info]] = {}
    inbox = broker.client.new_inbox()

    async def heard(message: Msg) -> None:
        try:
            info = msgspec.json.decode(message.data, type=_Info)
        except msgspec.DecodeError:
            return  # whatever else answers there is not ours
        if info.name.startswith("headway"):
            found.setdefault(info.name, {})[info.id] = info

    try:
        subscription = await broker.client.subscribe(inbox, cb=heard)
        try:
            await broker.client.publish(_ASK_ALL, reply=inbox)
            await asyncio.sleep(_GATHER_SECONDS)
        finally:
            await subscription.unsubscribe()
    except (OSError, NatsError):
        return []
    return [_answering(name, list(told.values())) for name, told in sorted(found.items())]


def _answering(name: str, told: list[_Info]) -> Answering:
    return Answering(
        name=name,
        processes=len(told),
        versions=sorted({one.version for one in told}),
        endpoints=max(len(one.endpoints) for one in told),
    )


async def _read_stream(broker: Broker, name: str) -> StreamStatus:
    try:
        told = await broker.api(f"STREAM.INFO.{name}", timeout=_ANSWER_SECONDS)
        listed = await broker.api(f"CONSUMER.LIST.{name}", timeout=_ANSWER_SECONDS)
    except ApiError as error:
        return StreamStatus(name=name, problem=str(error))
    except BrokerUnavailable as error:
        return StreamStatus(name=name, problem=str(error))
    consumers = sorted(listed.get("consumers") or [], key=lambda one: str(one["name"]))
    return StreamStatus(
        name=name,
        messages=told["state"]["messages"],
        bytes=told["state"]["bytes"],
        limit=max(0, told["config"].get("max_bytes", 0)),
        replicas=told["config"].get("num_replicas", 1),
        consumers=[_consumer(one) for one in consumers[:_MOST_CONSUMERS]],
        consumers_in_all=told["state"].get("consumer_count", len(consumers)),
    )


def _consumer(told: dict[str, Any]) -> Consumer:
    last = (told.get("delivered") or {}).get("last_active")
    return Consumer(
        name=told["name"],
        pending=told.get("num_pending", 0),
        unacknowledged=told.get("num_ack_pending", 0),
        redelivered=told.get("num_redelivered", 0),
        last_at=None if last is None else msgspec.convert(last, datetime, strict=False),
    )
