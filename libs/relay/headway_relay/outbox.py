"""Messages of the outbox, which are written in the transaction of the decision.

After the commit a process hands them to its own relay. A lost handover only delays them.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from headway_contract import Event, encode
from headway_postgres_kit import Connection, Queries, StatementBatch
from headway_service_kit.passes import Wakeup
from headway_tracing import CONTEXTS_APART, traceparent
from msgspec import Struct, structs

_MAX_EVENTS = 100
_MAX_BYTES = 256 * 1024
# The relay reads any more messages from the outbox, so that an outage does not fill the memory.
_MAX_HANDED = 1000


class OutboxMessage(Struct, frozen=True, kw_only=True):
    """A message to publish after the commit."""

    message_id: str
    subject: str
    body: bytes
    # Its traces, separated by spaces; `None` means the trace that writes it.
    traceparent: str | None = None
    # Whether the outbox has the body; otherwise a relay without the message rebuilds it.
    stored_body: bool = True


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
            [message.body if message.stored_body else None for message in messages],
            [message.traceparent or current for message in messages],
        )


class Handover(Wakeup):
    """Wakes the relay and hands it messages that were just committed."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[OutboxMessage] = []

    def call(self, *, has_work: bool = True) -> None:
        """Wake the relay to read the outbox."""
        super().call(has_work=has_work)

    def hand(self, messages: Sequence[OutboxMessage]) -> None:
        """Wake the relay to publish these messages of the outbox."""
        if not messages:
            return
        if len(self._messages) + len(messages) > _MAX_HANDED:
            self.call()
            return
        self._messages += messages
        self.call(has_work=False)

    def take(self) -> tuple[list[OutboxMessage], bool]:
        """Return the messages handed over, and whether to read the outbox."""
        messages, self._messages = self._messages, []
        return messages, self.begin()


def stamped(messages: Sequence[OutboxMessage]) -> list[OutboxMessage]:
    """Return the messages with the current trace where they have none."""
    current = traceparent()
    return [
        message
        if current is None or message.traceparent
        else structs.replace(message, traceparent=current)
        for message in messages
    ]


def bundled(subject: str, events: Sequence[Event]) -> list[OutboxMessage]:
    """Pack events for a subject into as few messages as possible.

    The id of the first event is the message id, by which the broker drops duplicates. So events
    must be published only once, or always in the same bundle.
    """
    messages = []
    for chunk in _chunks([(event, encode(event)) for event in events]):
        traces = [trace for event, _ in chunk for trace in _traces_of(event) if trace]
        # The same bytes as `encode` of all events, without encoding them again.
        bodies = b",".join(body for _, body in chunk)
        messages.append(
            OutboxMessage(
                message_id=chunk[0][0].id,
                subject=subject,
                body=bodies if len(chunk) == 1 else b"[%b]" % bodies,
                traceparent=CONTEXTS_APART.join(traces) or None,
            )
        )
    return messages


def _traces_of(event: Event) -> Sequence[str | None]:
    """Return the traces of an event about several works, or its own."""
    return getattr(event.data, "traceparents", None) or [event.traceparent]


def _chunks(events: Sequence[tuple[Event, bytes]]) -> Iterator[list[tuple[Event, bytes]]]:
    """Split events and their bodies into the events of each message."""
    chunk: list[tuple[Event, bytes]] = []
    size = 0
    for event, body in events:
        if chunk and (len(chunk) == _MAX_EVENTS or size + len(body) > _MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append((event, body))
        size += len(body)
    if chunk:
        yield chunk
