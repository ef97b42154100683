"""Reads the state of streams and detects a stream that was replaced or restored.

A stream that was deleted and created again has another creation time. A stream that was restored
from a backup has a lower last sequence. Since the sequence may have grown again before the next
look, a reconnect also counts as a change: storage is restored only when a server starts.
"""

from msgspec import Struct

from headway_jetstream_kit.connection import Broker
from headway_jetstream_kit.provisioning import consumer_info, stream_info


class StreamState(Struct, frozen=True, kw_only=True):
    """The state of a stream."""

    created: str
    first_sequence: int
    last_sequence: int
    bytes: int
    max_bytes: int

    def follows(self, earlier: "StreamState | None") -> bool:
        """Return whether this can be a later state of the same stream."""
        if earlier is None or self.created != earlier.created:
            return False
        return self.last_sequence >= earlier.last_sequence


async def see(broker: Broker, stream: str) -> StreamState | None:
    """Read the state of a stream; `None` if it does not exist."""
    info = await stream_info(broker, stream)
    if info is None:
        return None
    state = info["state"]
    return StreamState(
        created=info["created"],
        first_sequence=state["first_seq"],
        last_sequence=state["last_seq"],
        bytes=state["bytes"],
        max_bytes=info["config"].get("max_bytes", -1),
    )


async def done_through(broker: Broker, stream: str, consumer: str, seen: StreamState) -> int | None:
    """Return the sequence up to which a consumer is done; `None` if it does not exist.

    `seen` must be read first: an idle consumer is done with all messages stored by then, including
    expired ones that never moved its ack floor.
    """
    info = await consumer_info(broker, stream, consumer)
    if info is None:
        return None
    floor: int = info["ack_floor"]["stream_seq"]
    idle = info["num_pending"] == 0 and info["num_ack_pending"] == 0
    return max(floor, seen.last_sequence) if idle else max(floor, seen.first_sequence - 1)


class Watch:
    """Detects replaced or restored streams over one connection."""

    def __init__(self, broker: Broker, *streams: str) -> None:
        self._broker = broker
        self._streams = streams
        self._seen: dict[str, StreamState | None] = {}
        self._reconnects = -1

    async def look(self) -> bool:
        """Return whether a stream is missing or may have changed; true at the first look."""
        reconnects = self._broker.reconnects
        seen = {stream: await see(self._broker, stream) for stream in self._streams}
        steady = reconnects == self._reconnects and all(
            state is not None and state.follows(self._seen.get(stream))
            for stream, state in seen.items()
        )
        self._seen, self._reconnects = seen, reconnects
        return not steady
