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
    """A stream with its configuration as JetStream's API takes it."""

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
    """Purge a new stream: storage that lost only its metadata brings old messages back."""
    state = made["state"]
    if state["messages"]:
        log.warning("purged old messages from new stream", stream=name, messages=state["messages"])
        await broker.api(f"STREAM.PURGE.{name}", {"seq": state["last_seq"] + 1})


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
    try:
        return await broker.api(f"STREAM.INFO.{name}")
    except ApiError as error:
        if error.err_code == STREAM_NOT_FOUND:
            return None
        raise


async def consumer_info(broker: Broker, stream: str, name: str) -> dict[str, Any] | None:
    """Return the state of a consumer; `None` if it or its stream does not exist."""
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
    """Delete a consumer if it exists."""
    try:
        await broker.api(f"CONSUMER.DELETE.{stream}.{name}")
    except ApiError as error:
        if error.err_code not in (CONSUMER_NOT_FOUND, STREAM_NOT_FOUND):
            raise


async def take_over(broker: Broker, stream: str, name: str) -> int:
    """Redeliver the unacknowledged messages of a dead process at once; return how many.

    Otherwise they are redelivered only after the ack wait. While another process pulls, nothing is
    done, because the messages may be its own. Duplicates must be harmless: the consumer goes back
    to the first unacknowledged message and forgets later acknowledgements.
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
    left: int = found["num_ack_pending"]
    return left


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ, as pairs of actual and wanted value."""
    return {
        key: (found.get(key), value) for key, value in wanted.items() if found.get(key) != value
    }
