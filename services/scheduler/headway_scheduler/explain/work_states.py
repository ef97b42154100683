"""Ask the dispatcher for the state of outstanding work."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

from headway_contract import subjects
from headway_contract.work_queue import ExplainWorkAnswer, WorkQuestion
from headway_errors import RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_tracing.log import get_logger

log = get_logger(__name__)

# Less than the caller waits for its own answer.
_SECONDS = 2.0
_MOST = 20


async def read_states(broker: Broker, works: Sequence[UUID]) -> list[ExplainWorkAnswer]:
    """Return the states of the first works that a dispatcher knows and answers in time."""
    answers = await asyncio.gather(*(_read_state(broker, work) for work in works[:_MOST]))
    return [answer for answer in answers if answer is not None]


async def _read_state(broker: Broker, work: UUID) -> ExplainWorkAnswer | None:
    question = WorkQuestion(work=work)
    try:
        return await ask(
            *(broker, subjects.EXPLAIN_WORK_QUESTION, question, ExplainWorkAnswer),
            timeout=_SECONDS,
        )
    except RequestFailed as error:
        log.info("state of work unknown", work=work, error=error)
        return None
