"""Writing to the outbox, inside the transaction that decided."""

from collections.abc import Sequence
from typing import Any

from headway_postgres_kit import Connection, Queries, StatementBatch
from headway_tracing import CONTEXTS_APART, traceparent
from msgspec import Struct

# Between the traces of a message that several of them travel in.
TRACES_APART = CONTEXTS_APART


class OutboxMessage(Struct, frozen=True, kw_only=True):
    """A message to be published once the transaction has committed.

    `traceparent` is the trace that it belongs to, or several with a space between them; without
    one it belongs to the trace in which it is written.
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
        """Append messages to be published after the commit."""
        writes = StatementBatch()
        self.add_to(writes, messages)
        await writes.send(connection)

    def add_to(self, writes: StatementBatch, messages: Sequence[OutboxMessage]) -> None:
        """Append messages together with what else is written."""
        if messages:
            writes.add(self.queries["add"], *self.columns(messages))

    @staticmethod
    def columns(messages: Sequence[OutboxMessage]) -> tuple[list[Any], ...]:
        """Messages as the parameters of a statement that appends them: `add`, or a wider one."""
        current = traceparent()
        return (
            [message.message_id for message in messages],
            [message.subject for message in messages],
            [message.body for message in messages],
            [message.traceparent or current for message in messages],
        )

    async def backlog(self, connection: Connection) -> int:
        """How many messages wait."""
        count: int = await connection.fetchval(self.queries["backlog"])
        return count
