"""Creates and updates streams and durable consumers."""

from typing import Any

from headway_tracing.log import get_logger
from msgspec import Struct

from headway_jetstream_kit.connection import ApiError, Broker, BrokerUnavailable

log = get_logger(__name__)

STREAM_NOT_FOUND = 10059
STREAM_NAME_IN_USE = 10058
CONSUMER_NOT_FOUND = 10014


class Stream(Struct, frozen=True, kw_only=True):
    """A stream, with its configuration in the format of JetStream's API."""

    name: str
    config: dict[str, Any]


class Consumer(Struct, frozen=True, kw_only=True):
    """A durable pull consumer."""

    stream: str
    name: str
    config: dict[str, Any]


async def ensure_stream(broker: Broker, stream: Stream) -> bool:
    """Create or update the stream; return whether anything changed."""
    config = {"name": stream.name, **stream.config}
    found = await stream_info(broker, stream.name)
    if found is not None:
        if not differences(found["config"], config):
            return False
        await broker.api(f"STREAM.UPDATE.{stream.name}", {**found["config"], **config})
        return True
    try:
        state = (await broker.api(f"STREAM.CREATE.{stream.name}", config))["state"]
    except ApiError as error:
        if error.err_code != STREAM_NAME_IN_USE:
            raise
        return True
    if state["messages"]:
        # Storage that lost only its metadata restores old messages.
        log.warning(
            "purged old messages from new stream", stream=stream.name, messages=state["messages"]
        )
        await broker.api(f"STREAM.PURGE.{stream.name}", {"seq": state["last_seq"] + 1})
    return True


async def ensure_consumer(broker: Broker, consumer: Consumer) -> bool:
    """Create or update the consumer; return whether anything changed."""
    config = {"durable_name": consumer.name, "name": consumer.name, **consumer.config}
    found = await consumer_info(broker, consumer.stream, consumer.name)
    if found is not None and not differences(found["config"], config):
        return False
    request = {"stream_name": consumer.stream, "config": config}
    await broker.api(f"CONSUMER.DURABLE.CREATE.{consumer.stream}.{consumer.name}", request)
    return True


async def stream_info(broker: Broker, name: str) -> dict[str, Any] | None:
    """Return the state of a stream; `None` if it does not exist."""
    return await _api_if_exists(broker, f"STREAM.INFO.{name}")


async def consumer_info(broker: Broker, stream: str, name: str) -> dict[str, Any] | None:
    """Return the state of a consumer; `None` if it or its stream does not exist."""
    return await _api_if_exists(broker, f"CONSUMER.INFO.{stream}.{name}")


async def consumer_names(broker: Broker, stream: str) -> list[str]:
    """List the consumers of a stream; an empty list if the stream does not exist."""
    names: list[str] = []
    while True:
        page = await _api_if_exists(broker, f"CONSUMER.NAMES.{stream}", {"offset": len(names)})
        if page is None:
            return []
        found = page.get("consumers") or []
        names += found
        if not found or len(names) >= page["total"]:
            return names


async def delete_consumer(broker: Broker, stream: str, name: str) -> None:
    """Delete a consumer if it exists."""
    await _api_if_exists(broker, f"CONSUMER.DELETE.{stream}.{name}")


async def _api_if_exists(broker: Broker, verb: str, request: Any = None) -> dict[str, Any] | None:
    try:
        return await broker.api(verb, request)
    except ApiError as error:
        if error.err_code in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
            return None
        raise


async def take_over(broker: Broker, stream: str, name: str) -> int:
    """Redeliver the unacknowledged messages of a dead process before the ack wait; return how many.

    This does nothing while another process pulls, because the messages may be its own. Duplicates
    must be harmless: the consumer goes back to the first unacknowledged message and forgets later
    acknowledgements.
    """
    try:
        found = await consumer_info(broker, stream, name)
        if found is None or found["num_waiting"] or not found["num_ack_pending"]:
            return 0
        await broker.api(f"CONSUMER.RESET.{stream}.{name}", timeout=2)
    except (ApiError, BrokerUnavailable) as error:
        # A server before 2.14, or no permission.
        log.info(
            "cannot reset consumer; unacknowledged messages are redelivered after ack_wait",
            stream=stream,
            consumer=name,
            error=error,
        )
        return 0
    pending: int = found["num_ack_pending"]
    log.info("redelivering unacknowledged messages", stream=stream, consumer=name, messages=pending)
    return pending


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, as pairs of actual and wanted value."""
    return {
        key: (found.get(key), value) for key, value in wanted.items() if found.get(key) != value
    }
