"""Streams and durable consumers: made where missing, left alone where they are right."""

import asyncio
from typing import Any

from headway_tracing.log import get_logger
from msgspec import Struct

from headway_jetstream_kit.connection import ApiError, Broker, BrokerUnavailable

log = get_logger(__name__)

STREAM_NOT_FOUND = 10059
STREAM_NAME_IN_USE = 10058
CONSUMER_NOT_FOUND = 10014


class Stream(Struct, frozen=True, kw_only=True):
    """A stream, in the words of the server's own configuration."""

    name: str
    config: dict[str, Any]


class Consumer(Struct, frozen=True, kw_only=True):
    """A durable pull consumer."""

    stream: str
    name: str
    config: dict[str, Any]


async def ensure_stream(broker: Broker, stream: Stream) -> bool:
    """Create the stream, or bring its settings up to date; true if anything changed."""
    config = {"name": stream.name, **stream.config}
    found = await stream_info(broker, stream.name)
    if found is None:
        try:
            made = await broker.api(f"STREAM.CREATE.{stream.name}", config)
        except ApiError as error:
            if error.err_code != STREAM_NAME_IN_USE:
                raise
        else:
            await _empty(broker, stream.name, made)
        return True
    if differences(found["config"], config):
        await broker.api(f"STREAM.UPDATE.{stream.name}", {**found["config"], **config})
        return True
    return False


async def _empty(broker: Broker, name: str, made: dict[str, Any]) -> None:
    """A new stream holds nothing. Storage that lost only its description brings messages back."""
    state = made["state"]
    if state["messages"]:
        log.warning("purged old messages from new stream", stream=name, messages=state["messages"])
        await broker.api(f"STREAM.PURGE.{name}", {"seq": state["last_seq"] + 1})


async def ensure_consumer(broker: Broker, consumer: Consumer) -> bool:
    """Create the durable, or bring its settings up to date; true if anything changed."""
    config = {"durable_name": consumer.name, "name": consumer.name, **consumer.config}
    found = await consumer_info(broker, consumer.stream, consumer.name)
    if found is not None and not differences(found["config"], config):
        return False
    request = {"stream_name": consumer.stream, "config": config}
    await broker.api(f"CONSUMER.DURABLE.CREATE.{consumer.stream}.{consumer.name}", request)
    return True


async def stream_info(broker: Broker, name: str) -> dict[str, Any] | None:
    """What the server knows of a stream, or none if there is no such."""
    try:
        return await broker.api(f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return None
        raise


async def consumer_info(broker: Broker, stream: str, name: str) -> dict[str, Any] | None:
    """What the server knows of a consumer, or none if there is no such (or no stream)."""
    try:
        return await broker.api(f"CONSUMER.INFO.{stream}.{name}")
    except ApiError as error:
        if error.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
            return None
        raise


async def consumer_names(broker: Broker, stream: str) -> list[str]:
    """List the consumers of a stream; an empty list if there is no such stream."""
    names: list[str] = []
    while True:
        try:
            page = await broker.api(f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
        except ApiError as error:
            if error.err_code == STREAM_NOT_FOUND:
                return []
            raise
        found = page.get("consumers") or []
        names += found
        if not found or len(names) >= page["total"]:
            return names


async def delete_consumer(broker: Broker, stream: str, name: str) -> None:
    """Delete a consumer; one that is gone already is no error."""
    try:
        await broker.api(f"CONSUMER.DELETE.{stream}.{name}")
    except ApiError as error:
        if error.err_code not in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
            raise


async def take_over(broker: Broker, stream: str, name: str) -> int:
    """Redeliver the unacknowledged messages of a dead process at once; return how many.

    Otherwise they come again only after the ack wait. While another process pulls, the messages
    may be its own, and nothing is done. Receiving a message twice must be harmless: the consumer
    goes back to the first unacknowledged message and forgets later acknowledgements.
    """
    try:
        found = await consumer_info(broker, stream, name)
        if found is None or found["num_waiting"] or not found["num_ack_pending"]:
            return 0
        await broker.api(f"CONSUMER.RESET.{stream}.{name}", timeout=2)
    except (ApiError, BrokerUnavailable) as error:
        # A server before 2.14, or one that does not let us: then it is the ack wait.
        log.info(
            "cannot reset consumer; unacknowledged messages are redelivered after ack_wait",
            stream=stream,
            consumer=name,
            error=error,
        )
        return 0
    left: int = found["num_ack_pending"]
    return left


async def wait_until_ready(broker: Broker, *, attempts: int = 20) -> None:
    """Wait for JetStream to answer; right after its start it may not."""
    for attempt in range(attempts):
        try:
            await broker.api("INFO", timeout=1)
        except (BrokerUnavailable, ApiError):
            if attempt + 1 == attempts:
                raise
            await asyncio.sleep(0.1)
        else:
            return


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings that are not as wanted: what each is, and what it should be."""
    return {
        key: (found.get(key), value) for key, value in wanted.items() if found.get(key) != value
    }
