"""Seeing streams as they are: which one it is, where it ends, and whether it is still the same.

A stream that was deleted and made again has another time of creation. One whose storage was
put back to an earlier state keeps it, but its last sequence is lower than it was; and since
that may have grown again before anybody looks, a new connection is a reason for doubt, too:
storage goes back only when a server starts.
"""

from msgspec import Struct

from headway_jetstream_kit.connection import Broker
from headway_jetstream_kit.provisioning import consumer_info, stream_info


class StreamSight(Struct, frozen=True, kw_only=True):
    """A stream at one moment."""

    created: str
    first_sequence: int
    last_sequence: int
    bytes: int
    max_bytes: int

    def follows(self, earlier: "StreamSight") -> bool:
        """Whether this may be the same stream later on."""
        return self.created == earlier.created and self.last_sequence >= earlier.last_sequence


async def see(broker: Broker, stream: str) -> StreamSight | None:
    """Look at a stream; none if there is no such."""
    info = await stream_info(broker, stream)
    if info is None:
        return None
    state = info["state"]
    return StreamSight(
        created=info["created"],
        first_sequence=state["first_seq"],
        last_sequence=state["last_seq"],
        bytes=state["bytes"],
        max_bytes=info["config"].get("max_bytes", -1),
    )


async def done_through(broker: Broker, stream: str, consumer: str, seen: StreamSight) -> int | None:
    """Up to which sequence a consumer is done; none if there is no such consumer.

    The stream must have been seen before: with nothing left for the consumer, all that was
    stored by then is done, also what expired unseen and never moved its floor.
    """
    info = await consumer_info(broker, stream, consumer)
    if info is None:
        return None
    floor: int = info["ack_floor"]["stream_seq"]
    idle = info["num_pending"] == 0 and info["num_ack_pending"] == 0
    return max(floor, seen.last_sequence) if idle else max(floor, seen.first_sequence - 1)


class Watch:
    """Notices over one connection that streams are no longer what they were."""

    def __init__(self, broker: Broker, *streams: str) -> None:
        self._broker = broker
        self._streams = streams
        self._seen: dict[str, StreamSight | None] = {}
        self._reconnects = -1

    async def look(self) -> bool:
        """True if a stream is missing, new or went back, or may have; at the first look, too."""
        reconnects = reconnects_of(self._broker)
        seen = {stream: await see(self._broker, stream) for stream in self._streams}
        steady = reconnects == self._reconnects and all(
            _follows(self._seen.get(stream), now) for stream, now in seen.items()
        )
        self._seen, self._reconnects = seen, reconnects
        return not steady


def reconnects_of(broker: Broker) -> int:
    """How often the connection was made anew."""
    count: int = broker.client.stats["reconnects"]
    return count


def _follows(earlier: StreamSight | None, now: StreamSight | None) -> bool:
    return earlier is not None and now is not None and now.follows(earlier)
