"""Publishes the messages of the outbox."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

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
_COLUMNS = ("id", "message_id", "subject", "body", "traceparent", "created_at")


@dataclass(eq=False)
class Relay:
    """Publishes the outbox of one schema."""

    database: Database
    broker: Broker
    outbox: Outbox
    handover: Handover = field(default_factory=Handover)
    batch: int = 500

    def __post_init__(self) -> None:
        # When to read the outbox while messages are handed over continuously.
        self._look_at = monotonic() + SAFETY_POLL

    async def run_once(self) -> float | None:
        """Publish the messages that were handed over, and a batch of the outbox.

        While messages are handed over continuously, the relay still reads the outbox for rows
        that were left behind: at every safety poll, and soon after the broker refused a message.
        """
        handed, is_called = self.handover.take()
        refused = await self._deliver(handed) if handed else 0
        if refused:
            self._look_at = min(self._look_at, monotonic() + _LEFT_BEHIND.total_seconds())
        is_outage = refused == len(handed)
        if is_called or not handed:
            rest = await self._publish_batch(_ANY_AGE, is_outage=is_outage)
            if rest == 0.0:  # a full batch: read the rest of the outbox in the next pass
                self.handover.call()
        elif monotonic() >= self._look_at:
            rest = await self._publish_batch(_LEFT_BEHIND, is_outage=is_outage)
        else:
            rest = None
        return _RETRY_SECONDS if refused else rest

    async def _deliver(self, messages: Sequence[OutboxMessage]) -> int:
        """Publish messages and delete their rows; return how many stay in the outbox."""
        answers = await self._publish_all(messages)
        stored = [
            message.message_id
            for message, answer in zip(messages, answers, strict=True)
            if _is_stored(answer)
        ]
        if stored:
            async with self.database.acquire() as connection:
                await connection.execute(self.outbox.queries["published"], stored)
        return len(messages) - len(stored)

    async def _publish_batch(self, age: timedelta, *, is_outage: bool) -> float | None:
        """Publish a batch of outbox rows of at least this age.

        The transaction commits only after the broker has answered; `is_outage` means that it
        stored no other message in this pass.
        """
        self._look_at = monotonic() + _RETRY_SECONDS
        async with self.database.transaction() as connection:
            rows = await connection.fetch(self.outbox.queries["take"], self.batch, age)
            messages = [
                OutboxMessage(**{name: row[name] for name in OutboxMessage.__struct_fields__})
                for row in rows
            ]
            answers = await self._publish_all(messages) if rows else []
            answered = list(zip(rows, answers, strict=True))
            too_large = [row for row, answer in answered if _is_too_large(answer)]
            left = [
                (row, answer)
                for row, answer in answered
                if not (_is_stored(answer) or _is_too_large(answer))
            ]
            if too_large:
                await self._put_aside(connection, too_large)
            if left:
                failed, reason = len(left), left[0][1]
                if failed == len(rows) and is_outage:
                    raise BrokerUnavailable(f"none of {failed} messages was published: {reason}")
                log.warning("messages not published", failed=failed, batch=len(rows), reason=reason)
                columns = _columns([row for row, _ in left], *_COLUMNS)
                await connection.execute(self.outbox.queries["put_back"], *columns)
        if left:
            return _RETRY_SECONDS
        if len(rows) == self.batch:
            self._look_at = monotonic()
            return 0.0
        self._look_at = monotonic() + SAFETY_POLL
        return None

    async def _put_aside(self, connection: Connection, rows: Sequence[driver.Record]) -> None:
        """Move messages that can never be published to the rejected table."""
        log.error(
            "messages too large for NATS moved to the rejected table",
            messages=len(rows),
            table=f"{self.outbox.schema}.rejected",
            first_bytes=len(rows[0]["body"]),
            first_subject=rows[0]["subject"],
            remedy="raise max_payload of NATS, or max_msg_size of the stream",
        )
        columns = _columns(rows, "message_id", "subject", "body")
        await connection.execute(self.outbox.queries["put_aside"], *columns)

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


def _columns(rows: Sequence[driver.Record], *names: str) -> list[list[Any]]:
    return [[row[name] for row in rows] for name in names]


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
