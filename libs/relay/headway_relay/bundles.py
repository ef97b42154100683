"""Events that were decided together and travel together: a message costs more than an event."""

from collections.abc import Iterator, Sequence

from headway_contract import Event, encode

from headway_relay.outbox import TRACES_APART, OutboxMessage

MOST_EVENTS = 100
MOST_BYTES = 256 * 1024


def bundled(subject: str, events: Sequence[Event]) -> list[OutboxMessage]:
    """Events for one subject in as few messages as they fit into.

    The id of the first event names its message, and the broker drops a second one of that name.
    So this is for what is told once, or always together.
    """
    return [
        OutboxMessage(
            message_id=chunk[0].id,
            subject=subject,
            body=body,
            traceparent=TRACES_APART.join(filter(None, (one.traceparent for one in chunk))) or None,
        )
        for chunk, body in _chunks(events)
    ]


def _chunks(events: Sequence[Event]) -> Iterator[tuple[list[Event], bytes]]:
    """Events that fit into one message, and its body."""
    chunk: list[Event] = []
    parts: list[bytes] = []
    size = 0
    for one in events:
        part = encode(one)
        if chunk and (len(chunk) == MOST_EVENTS or size + len(part) > MOST_BYTES):
            yield chunk, _array(parts)
            chunk, parts, size = [], [], 0
        chunk.append(one)
        parts.append(part)
        size += len(part)
    if chunk:
        yield chunk, _array(parts)


def _array(parts: Sequence[bytes]) -> bytes:
    """What `encode` makes of the events of these parts; each was encoded once already."""
    if len(parts) == 1:
        return parts[0]
    return b"[" + b",".join(parts) + b"]"
