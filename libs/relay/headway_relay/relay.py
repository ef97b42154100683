"""Publishing what the outbox holds."""

import asyncio
import logging
from contextlib import ExitStack

import asyncpg
from headway_contract.subjects import MESSAGE_ID_HEADER, ORDER_ALREADY_STORED, TRACEPARENT_HEADER
from headway_jetstream_kit import Broker, BrokerUnavailable, NoAnswer, Refused, Stored
from headway_jetstream_kit.publishing import TOO_LARGE, Answer, publish
from headway_postgres_kit import Database
from headway_tracing import span

from headway_relay.outbox import TRACES_APART, Outbox

logger = logging.getLogger(__name__)

BATCH = 500
# How soon to try again with what was not taken, while the rest goes through.
_TRY_AGAIN = 0.5


class Relay:
    """Publishes the outbox of one schema."""

    def __init__(self, database: Database, broker: Broker, outbox: Outbox) -> None:
        self._database = database
        self._broker = broker
        self._outbox = outbox

    async def run_once(self) -> float | None:
        """Publish one batch; the rows stay locked until the broker has answered."""
        if not await self._has_mail():
            return None
        async with self._database.transaction() as connection:
            rows = await connection.fetch(self._outbox.queries["take"], BATCH)
            if not rows:
                return None
            with span("relay", messages=len(rows)):
                answers = await asyncio.gather(*(self._publish(row) for row in rows))
            settled = [
                row["id"] for row, answer in zip(rows, answers, strict=True) if _is_there(answer)
            ]
            hopeless = [
                row["id"] for row, answer in zip(rows, answers, strict=True) if _is_hopeless(answer)
            ]
            if hopeless:
                logger.error("%d message(s) are too large and are put aside", len(hopeless))
                await connection.execute(self._outbox.queries["put_aside"], hopeless)
            await connection.execute(self._outbox.queries["remove"], settled + hopeless)
        left = len(rows) - len(settled) - len(hopeless)
        if left:
            trouble = next(one for one in answers if not (_is_there(one) or _is_hopeless(one)))
            complaint = f"{left} of {len(rows)} messages were not taken: {trouble}"
            if left == len(rows):
                raise BrokerUnavailable(complaint)
            logger.warning(complaint)
            return _TRY_AGAIN
        return 0.0 if len(rows) == BATCH else None

    async def _has_mail(self) -> bool:
        """A quick look: a relay is woken more often than there is something to send."""
        async with self._database.acquire() as connection:
            mail: bool = await connection.fetchval(self._outbox.queries["any"])
        return mail

    async def _publish(self, row: asyncpg.Record) -> Answer:
        traces: list[str] = (row["traceparent"] or "").split(TRACES_APART)
        with ExitStack() as spans:
            for trace in traces:
                spans.enter_context(span("publish", parent=trace or None, subject=row["subject"]))
            headers = {MESSAGE_ID_HEADER: row["message_id"]}
            if traces[0]:
                headers[TRACEPARENT_HEADER] = traces[0]
            return await publish(self._broker, row["subject"], row["body"], headers=headers)


def _is_hopeless(answer: Answer) -> bool:
    """Whether the broker will never take the message."""
    return isinstance(answer, Refused) and answer.code == TOO_LARGE


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
