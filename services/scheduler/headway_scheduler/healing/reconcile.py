"""Ask the dispatcher for reconciliation, one scheduler at a time.

A turn is a row with a time, not a lock, so no transaction is open during a request. If a scheduler
dies in its turn, another takes over when the turn has lapsed. Two schedulers at once would only
republish a message twice, which is harmless.
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
# Longer than a request and the recording of its answer usually take.
_TURN = timedelta(seconds=20)


class CannotAsk(Exception):
    """No dispatcher runs, or another scheduler heals by now."""


class ReconcileFailed(ExpectedFault):
    """The dispatcher's answer did not arrive or is an error."""


class Turn:
    """The right of one scheduler to heal; every request extends it."""

    def __init__(self, database: Database, *, holder: str) -> None:
        self._database = database
        self._holder = holder

    async def take(self) -> bool:
        """Begin or extend the turn; false if another scheduler has it."""
        async with self._database.acquire() as connection:
            taken = await connection.fetchval(heals["take_turn"], self._holder, _TURN)
        return taken is not None

    async def end(self) -> None:
        """Let another scheduler heal at once."""
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
            broker, subjects.RECONCILE_QUESTION, question, ReconcileAnswer, timeout=_ANSWER_SECONDS
        )
    except NoResponder as error:
        raise CannotAsk(str(error)) from error
    except RequestFailed as error:
        raise ReconcileFailed(f"reconcile failed: kind={error.kind.value} error={error}") from error
