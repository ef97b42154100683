"""Whose is a lease? The answer for workers, by the last message that is stored of it."""

import base64
import logging
from typing import Any
from uuid import UUID

from headway_contract import Event, Unknown, decode, subjects
from headway_contract.control import LeaseAnswer, LeaseQuestion, LeaseState
from headway_contract.lifecycle import LeaseEvent, LeaseRevoked
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.controlling import serve, typed
from headway_postgres_kit import Database, DatabaseUnavailable
from msgspec import Struct

from headway_dispatcher.store import leases

_NO_MESSAGE = 10037
# Who has published what cannot be read.
NOBODY = ""

logger = logging.getLogger(__name__)


class LastStored(Struct, frozen=True, kw_only=True):
    """The last message that the broker has of a lease."""

    sequence: int
    worker: str
    events: list[Event]

    def is_from(self, worker: str, nonce: str) -> bool:
        """Whether a certain process published it."""
        return self.worker == worker and any(
            isinstance(one.data, LeaseEvent) and one.data.nonce == nonce for one in self.events
        )

    @property
    def revokes(self) -> bool:
        """Whether the dispatcher took the lease away with it."""
        return any(isinstance(one.data, LeaseRevoked) for one in self.events)


async def last_stored(broker: Broker, lease: UUID) -> LastStored | None:
    """Read the last message of a lease, over all workers; none if nothing is stored."""
    request = {"last_by_subj": subjects.events_of(lease)}
    try:
        answer = await broker.api(f"STREAM.MSG.GET.{subjects.EVENTS_STREAM}", request)
    except ApiError as error:
        if error.err_code == _NO_MESSAGE:
            return None
        raise BrokerUnavailable(str(error)) from error
    message = answer["message"]
    worker = NOBODY
    events: list[Event | Unknown] = []
    try:
        _, worker = subjects.lease_and_worker(message["subject"])
        events = decode(base64.b64decode(message.get("data", "")))
    except ValueError as error:  # nobody's word, but it stands in the fence's way all the same
        logger.debug("lease %s: %s", lease, error)
    return LastStored(
        sequence=message["seq"],
        worker=worker,
        events=[one for one in events if isinstance(one, Event)],
    )


class LeaseDesk:
    """Answers lease questions."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker

    async def listen(self) -> None:
        """Share the questions with all other dispatchers."""
        await serve(
            self._broker,
            service="headway-dispatcher",
            queue=subjects.DISPATCHERS,
            endpoints={subjects.LEASE_QUESTION: typed(LeaseQuestion, self.answer)},
        )

    async def answer(self, question: LeaseQuestion) -> LeaseAnswer:
        """Whose the lease is; undecided whenever that cannot be known for sure."""
        try:
            stored = await last_stored(self._broker, question.lease)
            async with self._database.acquire() as connection:
                known = await connection.fetchrow(leases["state_of"], question.lease)
        except (BrokerUnavailable, DatabaseUnavailable) as error:
            return LeaseAnswer(answer="undecided", reason=str(error))
        return LeaseAnswer(
            answer=_whose(question, known, stored),
            sequence=stored.sequence if stored else 0,
            stored=[one.id for one in stored.events] if stored else [],
            ended_runs=list(known["ended_runs"]) if known else [],
        )


def _whose(question: LeaseQuestion, known: Any, stored: LastStored | None) -> LeaseState:
    """The accepted claim decides; until one is projected, the last stored message does."""
    if known is None or known["ended"] or (stored is not None and stored.revokes):
        return "ended"
    if known["claimed_by"] is not None:
        if (known["claimed_by"], known["nonce"]) != (question.worker, question.nonce):
            return "another"
        return "mine" if stored is not None else "nothing_stored"
    if stored is None:
        return "nothing_stored"
    return "mine" if stored.is_from(question.worker, question.nonce) else "another"
