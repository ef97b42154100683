"""Asking the dispatcher what became of something, one scheduler at a time.

A turn is a row with a time and not a lock: no transaction stays open while the dispatcher is
asked. A scheduler that dies in its turn is followed by another when the turn has lapsed. Should
two ever heal at once, something is told twice, which does no harm.
"""

from datetime import timedelta

import msgspec
from headway_contract import subjects
from headway_contract.healing import ReconcileAnswer, ReconcileQuestion
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_service_kit.passes import ExpectedFault
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from headway_scheduler.store import heals

_ANSWER_SECONDS = 10.0
# Longer than a question and the recording of its answer usually take.
_TURN = timedelta(seconds=20)


class CannotAsk(Exception):
    """Nobody can be asked now: no dispatcher runs, or another scheduler asks by now."""


class ReconcileFailed(ExpectedFault):
    """A dispatcher was asked, and its answer did not come or is an error."""


class Turn:
    """The right of one scheduler to heal; kept for as long as it asks."""

    def __init__(self, database: Database, *, holder: str) -> None:
        self._database = database
        self._holder = holder

    async def take(self) -> bool:
        """Begin or prolong the turn; false if it is another scheduler's."""
        async with self._database.acquire() as connection:
            taken = await connection.fetchval(heals["take_turn"], self._holder, _TURN)
        return taken is not None

    async def end(self) -> None:
        """Let others heal at once."""
        async with self._database.acquire() as connection:
            await connection.execute(heals["end_turn"], self._holder)


async def ask(broker: Broker, turn: Turn, question: ReconcileQuestion) -> ReconcileAnswer:
    """Return the dispatcher's answer, or raise `CannotAsk` or `ReconcileFailed`."""
    if not await turn.take():
        raise CannotAsk("another scheduler heals")
    subject = subjects.RECONCILE_QUESTION
    try:
        reply = await broker.client.request(
            subjects.RECONCILE_QUESTION, msgspec.json.encode(question), timeout=_ANSWER_SECONDS
        )
    except NoRespondersError as error:
        raise CannotAsk(f"no dispatcher answers on {subject}: is one running?") from error
    except TimeoutError as error:
        raise ReconcileFailed(
            f"reconcile failed: subject={subject} error=no answer within {_ANSWER_SECONDS:g} s"
        ) from error
    except (OSError, NatsError) as error:
        raise ReconcileFailed(f"reconcile failed: subject={subject} error={error!r}") from error
    headers = reply.headers or {}
    if subjects.ERROR_HEADER in headers:
        code = headers.get(subjects.ERROR_CODE_HEADER)
        text = reply.data.decode(errors="replace") or headers[subjects.ERROR_HEADER]
        raise ReconcileFailed(f"reconcile failed: subject={subject} code={code} error={text}")
    try:
        return msgspec.json.decode(reply.data, type=ReconcileAnswer)
    except msgspec.DecodeError as error:
        raise ReconcileFailed(
            f"reconcile failed: subject={subject} error=unreadable answer: {error}"
        ) from error
