"""Messages of the outbox, and writing them in the transaction that decides."""

from collections.abc import Iterator, Sequence
from typing import Any

from headway_contract import Event, encode
from headway_postgres_kit import Connection, Queries, StatementBatch
from headway_tracing import CONTEXTS_APART, traceparent
from msgspec import Struct

# Separates the traces of a message whose events belong to several.
TRACES_APART = CONTEXTS_APART

_MAX_EVENTS = 100
_MAX_BYTES = 256 * 1024


class OutboxMessage(Struct, frozen=True, kw_only=True):
    """A message to publish once the transaction has committed.

    `traceparent` is the trace that it belongs to, or several separated by a space; `None` means
    the trace in which it is written.
    """

    message_id: str
    subject: str
    body: bytes
    traceparent: str | None = None


class Outbox:
    """The outbox of one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.queries = Queries("headway_relay", "outbox.sql", schema=schema)

    async def add(self, connection: Connection, messages: Sequence[OutboxMessage]) -> None:
        """Append messages to publish after the commit."""
        writes = StatementBatch()
        self.add_to(writes, messages)
        await writes.send(connection)

    def add_to(self, writes: StatementBatch, messages: Sequence[OutboxMessage]) -> None:
        """Append messages as part of a batch of statements."""
        if messages:
            writes.add(self.queries["add"], *self.columns(messages))

    @staticmethod
    def columns(messages: Sequence[OutboxMessage]) -> tuple[list[Any], ...]:
        """Return the parameters of a statement that appends the messages."""
        current = traceparent()
        return (
            [message.message_id for message in messages],
            [message.subject for message in messages],
            [message.body for message in messages],
            [message.traceparent or current for message in messages],
        )

    async def backlog(self, connection: Connection) -> int:
        """Count the messages to publish."""
        count: int = await connection.fetchval(self.queries["backlog"])
        return count


def bundled(subject: str, events: Sequence[Event]) -> list[OutboxMessage]:
    """Pack events for a subject into as few messages as possible.

    The id of the first event is the message id, by which the broker drops duplicates. So events
    must be published only once, or always in the same bundle.
    """
    return [
        OutboxMessage(
            message_id=chunk[0].id,
            subject=subject,
            body=body,
            traceparent=TRACES_APART.join(filter(None, (event.traceparent for event in chunk)))
            or None,
        )
        for chunk, body in _chunks(events)
    ]


def _chunks(events: Sequence[Event]) -> Iterator[tuple[list[Event], bytes]]:
    """Split events into the events and the body of each message."""
    chunk: list[Event] = []
    parts: list[bytes] = []
    size = 0
    for event in events:
        part = encode(event)
        if chunk and (len(chunk) == _MAX_EVENTS or size + len(part) > _MAX_BYTES):
            yield chunk, _join(parts)
            chunk, parts, size = [], [], 0
        chunk.append(event)
        parts.append(part)
        size += len(part)
    if chunk:
        yield chunk, _join(parts)


def _join(parts: Sequence[bytes]) -> bytes:
    """Return the same bytes as `encode` of all events, without encoding them again."""
    return parts[0] if len(parts) == 1 else b"[" + b",".join(parts) + b"]"
