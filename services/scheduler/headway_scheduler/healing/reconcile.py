"""Asking the dispatcher what became of something, one scheduler at a time.

A turn is a row with a time and not a lock: no transaction stays open while the dispatcher is
asked. A scheduler that dies in its turn is followed by another when the turn has lapsed. Should
two ever heal at once, something is told twice, which does no harm.
"""

from datetime import timedelta

from headway_contract import subjects
from headway_contract.reconcile import ReconcileAnswer, ReconcileQuestion
from headway_errors import NoResponder, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_postgres_kit import Database
from headway_service_kit.passes import ExpectedFault

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


async def ask_dispatcher(
    broker: Broker, turn: Turn, question: ReconcileQuestion
) -> ReconcileAnswer:
    """Return the dispatcher's answer, or raise `CannotAsk` or `ReconcileFailed`."""
    if not await turn.take():
        raise CannotAsk("another scheduler heals")
    try:
        return await ask(
            broker,
            subjects.RECONCILE_QUESTION,
            question,
            ReconcileAnswer,
            timeout=_ANSWER_SECONDS,
        )
    except NoResponder as error:
        raise CannotAsk(str(error)) from error
    except RequestFailed as error:
        raise ReconcileFailed(f"reconcile failed: kind={error.kind.value} error={error}") from error
