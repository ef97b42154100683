"""Publishing what the outbox holds."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import timedelta

import asyncpg
from headway_clock import monotonic
from headway_contract.subjects import MESSAGE_ID_HEADER, ORDER_ALREADY_STORED, TRACEPARENT_HEADER
from headway_jetstream_kit import Broker, BrokerUnavailable, NoAnswer, Refused, Stored
from headway_jetstream_kit.publish import TOO_LARGE, TOO_LARGE_FOR_STREAM, Answer, publish
from headway_postgres_kit import Connection, Database
from headway_service_kit.passes import SAFETY_POLL
from headway_tracing import span
from headway_tracing.log import get_logger

from headway_relay.handover import Handover
from headway_relay.outbox import TRACES_APART, Outbox, OutboxMessage

log = get_logger(__name__)

# How soon to try again with what was not taken, while the rest goes through.
_TRY_AGAIN = 0.5

# A row of this age was left behind: whoever holds a younger one is likely about to publish it.
_LEFT_BEHIND = timedelta(seconds=1)
_ANY_AGE = timedelta()


class Relay:
    """Publishes the outbox of one schema."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        outbox: Outbox,
        handover: Handover | None = None,
        *,
        batch: int = 500,
    ) -> None:
        self._database = database
        self._broker = broker
        self._outbox = outbox
        self._handover = handover or Handover()
        self._batch = batch
        # When to read the outbox while messages are handed over without a pause.
        self._look_at = monotonic() + SAFETY_POLL

    async def run_once(self) -> float | None:
        """Publish what was handed over, and a batch of the outbox.

        A process that is handed messages without a pause still reads its outbox for rows that
        were left behind: at every safety poll, and soon after the broker refused a message.
        """
        handed, is_called = self._handover.take()
        refused = await self._deliver(handed) if handed else 0
        if refused:
            self._look_at = min(self._look_at, monotonic() + _LEFT_BEHIND.total_seconds())
        is_outage = refused == len(handed)
        if is_called or not handed:
            rest = await self._publish_batch(_ANY_AGE, is_outage=is_outage)
            if rest == 0.0:  # a full batch: the call holds for the rest of the outbox, too
                self._handover.call()
        elif monotonic() >= self._look_at:
            rest = await self._publish_batch(_LEFT_BEHIND, is_outage=is_outage)
        else:
            rest = None
        return _TRY_AGAIN if refused else rest

    async def _deliver(self, messages: Sequence[OutboxMessage]) -> int:
        """Publish messages and delete their rows; returns how many stayed in the outbox."""
        answers = await self._publish_all(messages)
        there = [
            message.message_id
            for message, answer in zip(messages, answers, strict=True)
            if _is_there(answer)
        ]
        if there:
            async with self._database.acquire() as connection:
                await connection.execute(self._outbox.queries["published"], there)
        return len(messages) - len(there)

    async def _publish_batch(self, age: timedelta, *, is_outage: bool) -> float | None:
        """Publish one batch of rows of at least this age out of the outbox.

        The rows are taken out first, but for good only when the broker has answered: if
        anything goes wrong until then, they are still there. `is_outage` says that the broker
        took nothing else in this pass.
        """
        self._look_at = monotonic() + _TRY_AGAIN
        async with self._database.transaction() as connection:
            rows = await connection.fetch(self._outbox.queries["take"], self._batch, age)
            answers = await self._publish_all([_message(row) for row in rows]) if rows else []
            hopeless = [row for row, one in zip(rows, answers, strict=True) if _is_hopeless(one)]
            left = [
                (row, one)
                for row, one in zip(rows, answers, strict=True)
                if not (_is_there(one) or _is_hopeless(one))
            ]
            if left and len(left) == len(rows) and is_outage:
                raise BrokerUnavailable(_failure_text(left, len(rows)))
            await self._put_aside(connection, hopeless)
            await self._put_back(connection, left, len(rows))
        if left:
            return _TRY_AGAIN
        if len(rows) == self._batch:
            self._look_at = monotonic()
            return 0.0
        self._look_at = monotonic() + SAFETY_POLL
        return None

    async def _put_aside(self, connection: Connection, rows: Sequence[asyncpg.Record]) -> None:
        """Keep what can never be published where a person finds it."""
        if rows:
            log.error(
                "messages too large for NATS moved to the rejected table",
                messages=len(rows),
                table=f"{self._outbox.schema}.rejected",
                first_bytes=len(rows[0]["body"]),
                first_subject=rows[0]["subject"],
                remedy="raise max_payload of NATS, or max_msg_size of the stream",
            )
            await connection.execute(
                self._outbox.queries["put_aside"],
                [row["message_id"] for row in rows],
                [row["subject"] for row in rows],
                [row["body"] for row in rows],
            )

    async def _put_back(
        self, connection: Connection, left: Sequence[tuple[asyncpg.Record, Answer]], taken: int
    ) -> None:
        """Keep the rows that the broker did not take for the next time."""
        if not left:
            return
        log.warning("messages not published", failed=len(left), batch=taken, reason=left[0][1])
        await connection.execute(
            self._outbox.queries["put_back"],
            [row["id"] for row, _ in left],
            [row["message_id"] for row, _ in left],
            [row["subject"] for row, _ in left],
            [row["body"] for row, _ in left],
            [row["traceparent"] for row, _ in left],
            [row["created_at"] for row, _ in left],
        )

    async def _publish_all(self, messages: Sequence[OutboxMessage]) -> list[Answer]:
        with span("relay", messages=len(messages)):
            return await asyncio.gather(*(self._publish(message) for message in messages))

    async def _publish(self, message: OutboxMessage) -> Answer:
        traces = (message.traceparent or "").split(TRACES_APART)
        with ExitStack() as spans:
            for trace in traces:
                spans.enter_context(span("publish", parent=trace or None, subject=message.subject))
            headers = {MESSAGE_ID_HEADER: message.message_id}
            if traces[0]:
                headers[TRACEPARENT_HEADER] = traces[0]
            return await publish(self._broker, message.subject, message.body, headers=headers)


def _failure_text(left: Sequence[tuple[asyncpg.Record, Answer]], taken: int) -> str:
    return f"{len(left)} of {taken} messages were not published: {left[0][1]}"


def _message(row: asyncpg.Record) -> OutboxMessage:
    return OutboxMessage(
        message_id=row["message_id"],
        subject=row["subject"],
        body=row["body"],
        traceparent=row["traceparent"],
    )


def _is_hopeless(answer: Answer) -> bool:
    """Whether the broker will never take the message."""
    return isinstance(answer, Refused) and (
        answer.code == TOO_LARGE or answer.err_code == TOO_LARGE_FOR_STREAM
    )


def _is_there(answer: Answer) -> bool:
    """Whether the broker has the message. A second order for one lease finds the first."""
    match answer:
        case Stored():
            return True
        case Refused(err_code=err_code, description=description):
            # The same code also tells that the stream is full.
            return err_code == ORDER_ALREADY_STORED and "per subject" in description
        case NoAnswer():
            return False
