"""Publishes the messages of the outbox."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta

from headway_clock import monotonic
from headway_contract.subjects import MESSAGE_ID_HEADER, ORDER_ALREADY_STORED, TRACEPARENT_HEADER
from headway_jetstream_kit import Broker, BrokerUnavailable, NoAnswer, Refused, Stored
from headway_jetstream_kit.publish import TOO_LARGE, TOO_LARGE_FOR_STREAM, Answer, publish
from headway_postgres_kit import Connection, Database, driver
from headway_service_kit.passes import SAFETY_POLL
from headway_tracing import CONTEXTS_APART, span
from headway_tracing.log import get_logger

from headway_relay.outbox import Handover, Outbox, OutboxMessage

log = get_logger(__name__)

# Delay before the next try with messages that the broker did not store.
_RETRY_SECONDS = 0.5

# The handover of a row of this age has failed; a younger row may be about to be published.
_LEFT_BEHIND = timedelta(seconds=1)
_ANY_AGE = timedelta()
# How long the row of a published message may stay: rows are deleted together, and not while the
# receivers of the messages need the processor.
_DELETED_AFTER = 0.05
_COLUMNS = ("id", "message_id", "subject", "body", "traceparent", "created_at")

# Returns bodies that the outbox does not have, by message id, of messages that are still needed.
Rebuild = Callable[[Connection, Sequence[str]], Awaitable[dict[str, bytes]]]


@dataclass(eq=False)
class Relay:
    """Publishes the outbox of one schema."""

    database: Database
    broker: Broker
    outbox: Outbox
    handover: Handover = field(default_factory=Handover)
    batch: int = 500
    # For an outbox that has messages without a body.
    rebuild: Rebuild | None = None

    def __post_init__(self) -> None:
        # When to read the outbox while messages are handed over continuously.
        self._look_at = monotonic() + SAFETY_POLL
        # The ids of published messages that still have rows, and when to delete these.
        self._published: list[str] = []
        self._delete_at = 0.0
        # Whether the broker stored nothing at the last try.
        self._is_outage = False

    async def run_once(self) -> float | None:
        """Publish the messages that were handed over, and a batch of the outbox.

        While messages are handed over continuously, the relay still reads the outbox for rows
        that were left behind: at every safety poll, and soon after the broker refused a message.
        After an outage it reads the outbox first, so that no message overtakes those that waited.
        """
        handed, is_called = self.handover.take()
        if self._is_outage:
            handed, is_called = [], True
        refused = await self._deliver(handed) if handed else 0
        if refused:
            self._look_at = min(self._look_at, monotonic() + _LEFT_BEHIND.total_seconds())
        age: timedelta | None = None
        if is_called or not (handed or self._published):
            age = _ANY_AGE
        elif monotonic() >= self._look_at:
            age = _LEFT_BEHIND
        if refused or age is not None or not handed or monotonic() >= self._delete_at:
            await self._delete_published()
        rest = _DELETED_AFTER if self._published else None
        if age is not None:
            rest = await self._publish_batch(age, is_outage=refused == len(handed))
            if age == _ANY_AGE and rest == 0.0:
                # A full batch: the next pass reads the rest of the outbox.
                self.handover.call()
        if refused:
            return _RETRY_SECONDS
        look_in = self._look_at - monotonic()
        if rest is None and age is None and look_in < _LEFT_BEHIND.total_seconds():
            # Messages were handed over between a refusal and the next try.
            return max(0.0, look_in)
        return rest

    async def _deliver(self, messages: Sequence[OutboxMessage]) -> int:
        """Publish messages; return how many were not published."""
        answers = await self._publish_all(messages)
        if not self._published:
            self._delete_at = monotonic() + _DELETED_AFTER
        stored = [
            message.message_id
            for message, answer in zip(messages, answers, strict=True)
            if _is_stored(answer)
        ]
        self._published += stored
        return len(messages) - len(stored)

    async def _delete_published(self) -> None:
        """Delete the rows of published messages; a row that is left is published again."""
        if self._published:
            async with self.database.acquire() as connection:
                await connection.execute(self.outbox.queries["published"], self._published)
            self._published = []

    async def _publish_batch(self, age: timedelta, *, is_outage: bool) -> float | None:
        """Publish a batch of outbox rows of at least this age.

        The transaction commits only after the broker has answered; `is_outage` means that it
        stored no other message in this pass.
        """
        self._look_at = monotonic() + _RETRY_SECONDS
        self._is_outage = False
        async with self.database.transaction() as connection:
            taken = await connection.fetch(self.outbox.queries["take"], self.batch, age)
            bodies = await self._bodies(connection, taken)
            rows = [row for row in taken if row["message_id"] in bodies]
            messages = [
                OutboxMessage(
                    message_id=row["message_id"],
                    subject=row["subject"],
                    body=bodies[row["message_id"]],
                    traceparent=row["traceparent"],
                )
                for row in rows
            ]
            answers = await self._publish_all(messages) if rows else []
            too_large, left = [], []
            for row, message, answer in zip(rows, messages, answers, strict=True):
                if _is_too_large(answer):
                    too_large.append(message)
                elif not _is_stored(answer):
                    left.append((row, answer))
            if too_large:
                await self._put_aside(connection, too_large)
            if left:
                failed, reason = len(left), left[0][1]
                if failed == len(rows) and is_outage:
                    self._is_outage = True
                    raise BrokerUnavailable(f"none of {failed} messages was published: {reason}")
                log.warning("messages not published", failed=failed, batch=len(rows), reason=reason)
                columns = ([row[name] for row, _ in left] for name in _COLUMNS)
                await connection.execute(self.outbox.queries["put_back"], *columns)
        if left:
            return _RETRY_SECONDS
        if len(taken) == self.batch:
            self._look_at = monotonic()
            return 0.0
        self._look_at = monotonic() + SAFETY_POLL
        return None

    async def _bodies(
        self, connection: Connection, rows: Sequence[driver.Record]
    ) -> dict[str, bytes]:
        """Return the body of each message; rebuild those that the outbox does not have."""
        bodies = {row["message_id"]: row["body"] for row in rows if row["body"] is not None}
        missing = [row["message_id"] for row in rows if row["body"] is None]
        if missing and self.rebuild is not None:
            bodies |= await self.rebuild(connection, missing)
        return bodies

    async def _put_aside(self, connection: Connection, messages: Sequence[OutboxMessage]) -> None:
        """Move messages that can never be published to the rejected table."""
        log.error(
            "messages too large for NATS moved to the rejected table",
            messages=len(messages),
            table=f"{self.outbox.schema}.rejected",
            first_bytes=len(messages[0].body),
            first_subject=messages[0].subject,
            remedy="raise max_payload of NATS, or max_msg_size of the stream",
        )
        await connection.execute(
            self.outbox.queries["put_aside"],
            [message.message_id for message in messages],
            [message.subject for message in messages],
            [message.body for message in messages],
        )

    async def _publish_all(self, messages: Sequence[OutboxMessage]) -> list[Answer]:
        with span("relay", messages=len(messages)):
            return await asyncio.gather(*(self._publish(message) for message in messages))

    async def _publish(self, message: OutboxMessage) -> Answer:
        traces = (message.traceparent or "").split(CONTEXTS_APART)
        with ExitStack() as spans:
            for trace in traces:
                spans.enter_context(span("publish", parent=trace or None, subject=message.subject))
            headers = {MESSAGE_ID_HEADER: message.message_id}
            if traces[0]:
                headers[TRACEPARENT_HEADER] = traces[0]
            return await publish(self.broker, message.subject, message.body, headers=headers)


def _is_too_large(answer: Answer) -> bool:
    return isinstance(answer, Refused) and (
        answer.code == TOO_LARGE or answer.err_code == TOO_LARGE_FOR_STREAM
    )


def _is_stored(answer: Answer) -> bool:
    """Return whether the broker has the message, or the first order of the same lease."""
    match answer:
        case Stored():
            return True
        case Refused(err_code=err_code, description=description):
            # A full stream has the same code.
            return err_code == ORDER_ALREADY_STORED and "per subject" in description
        case NoAnswer():
            return False
