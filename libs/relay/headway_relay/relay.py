"""Publishing what the outbox holds."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import ExitStack

import asyncpg
from headway_contract.subjects import MESSAGE_ID_HEADER, ORDER_ALREADY_STORED, TRACEPARENT_HEADER
from headway_jetstream_kit import Broker, BrokerUnavailable, NoAnswer, Refused, Stored
from headway_jetstream_kit.publishing import TOO_LARGE, TOO_LARGE_FOR_STREAM, Answer, publish
from headway_postgres_kit import Connection, Database
from headway_tracing import span

from headway_relay.handover import Handover
from headway_relay.outbox import TRACES_APART, Outbox, OutboxMessage

logger = logging.getLogger(__name__)

# How soon to try again with what was not taken, while the rest goes through.
_TRY_AGAIN = 0.5


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

    async def run_once(self) -> float | None:
        """Publish what was handed over, and a batch of what else may be there."""
        handed, may_be_more = self._handover.take()
        stayed = await self._deliver(handed) if handed else False
        rest = await self._publish_batch() if may_be_more else None
        return _TRY_AGAIN if stayed else rest

    async def _deliver(self, messages: Sequence[OutboxMessage]) -> bool:
        """Publish messages and delete their rows; tells whether some stayed in the outbox."""
        answers = await self._publish_all(messages)
        there = [
            message.message_id
            for message, answer in zip(messages, answers, strict=True)
            if _is_there(answer)
        ]
        if there:
            async with self._database.acquire() as connection:
                await connection.execute(self._outbox.queries["published"], there)
        return len(there) < len(messages)

    async def _publish_batch(self) -> float | None:
        """Publish one batch out of the outbox.

        The rows are taken out first, but for good only when the broker has answered: if
        anything goes wrong until then, they are still there.
        """
        async with self._database.transaction() as connection:
            rows = await connection.fetch(self._outbox.queries["take"], self._batch)
            if not rows:
                return None
            answers = await self._publish_all([_message(row) for row in rows])
            hopeless = [row for row, one in zip(rows, answers, strict=True) if _is_hopeless(one)]
            left = [
                (row, one)
                for row, one in zip(rows, answers, strict=True)
                if not (_is_there(one) or _is_hopeless(one))
            ]
            await self._put_aside(connection, hopeless)
            await self._put_back(connection, left, len(rows))
        if left:
            return _TRY_AGAIN
        return 0.0 if len(rows) == self._batch else None

    async def _put_aside(self, connection: Connection, rows: Sequence[asyncpg.Record]) -> None:
        """Keep what can never be published where a person finds it."""
        if rows:
            logger.error(
                "%d message(s) are too large and are put aside in %s.rejected, the first of "
                "%d bytes on %s: raise max_payload of NATS, or max_msg_size of the stream",
                len(rows),
                self._outbox.schema,
                len(rows[0]["body"]),
                rows[0]["subject"],
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
        """Keep what the broker did not take for the next time; if that is all, it is an outage."""
        if not left:
            return
        complaint = f"{len(left)} of {taken} messages were not taken: {left[0][1]}"
        if len(left) == taken:
            raise BrokerUnavailable(complaint)
        logger.warning(complaint)
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
