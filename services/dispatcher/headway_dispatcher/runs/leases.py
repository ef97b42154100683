"""Answer workers that ask which process holds a lease.

Only accepted events count. The tables show how far the projector got; messages that it has not
read yet are judged here by the same rules. A refused message changes nothing except the sequence
that the next publisher must expect.
"""

import base64
from functools import partial
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract import Event, decode, subjects
from headway_contract.lifecycle import LeaseEvent, RunsCompleted
from headway_contract.worker_protocol import LeaseAnswer, LeaseQuestion, LeaseState
from headway_decisions.runs import acceptance
from headway_decisions.runs.acceptance import Arrived, Lease
from headway_decisions.runs.folding import Fact, Run, completions
from headway_decisions.runs.report_limits import storable_json
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.endpoints import serve, typed
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_dispatcher.store import leases

_NO_MESSAGE = 10037
# The worker of a message that cannot be read.
UNREADABLE = ""
# Beyond so many messages that the projector has not read, the answer waits for it.
_MOST_UNPROJECTED = 100

log = get_logger(__name__)


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A message of a lease and its lifecycle events."""

    sequence: int
    worker: str
    events: list[Event]


class LeaseView(Struct, frozen=True, kw_only=True):
    """A lease and its runs after every stored message, and the last of these messages."""

    lease: Lease
    runs: dict[UUID, Run]
    last: StoredMessage | None

    @property
    def sequence(self) -> int:
        """The sequence that the next publisher must expect."""
        return self.last.sequence if self.last else 0

    @property
    def is_free(self) -> bool:
        """Whether the lease can still be claimed."""
        return self.lease.claimed_by is None and not self.lease.ended


async def last_stored(
    broker: Broker, lease: UUID, worker: str | None = None
) -> StoredMessage | None:
    """Read the last message of a lease, of one worker or of all; `None` if nothing is stored."""
    subject = subjects.events_of(lease) if worker is None else subjects.event(lease, worker)
    return await _get(broker, {"last_by_subj": subject})


async def _get(broker: Broker, request: dict[str, Any]) -> StoredMessage | None:
    try:
        answer = await broker.api(f"STREAM.MSG.GET.{subjects.EVENTS_STREAM}", request)
    except ApiError as error:
        if error.err_code == _NO_MESSAGE:
            return None
        raise BrokerUnavailable(str(error)) from error
    message = answer["message"]
    worker, events = UNREADABLE, []
    try:
        _, worker = subjects.lease_and_worker(message["subject"])
        events = decode(storable_json(base64.b64decode(message.get("data", ""))))
    except ValueError as error:  # the message counts for nothing, but the fence includes it
        log.debug("unreadable message", subject=message["subject"], error=error)
    lifecycle = [
        event for event in events if isinstance(event, Event) and isinstance(event.data, LeaseEvent)
    ]
    return StoredMessage(sequence=message["seq"], worker=worker, events=lifecycle)


async def read_lease(
    broker: Broker, database: Database, lease: UUID
) -> LeaseView | Literal["unknown", "unread"]:
    """Read a lease as it will be once the projector has read everything that is stored now.

    `unread` means not known yet: too much is stored, or messages vanished meanwhile.
    """
    last = await last_stored(broker, lease)
    # One snapshot: runs that are newer than their lease would have its claim refused as the second.
    async with (
        database.acquire() as connection,
        connection.transaction(isolation="repeatable_read", readonly=True),
    ):
        row = await connection.fetchrow(leases["state_of"], lease)
        runs = await connection.fetch(leases["runs_of"], [lease])
    if row is None:
        return "unknown"
    view = LeaseView(lease=lease_of(row), runs={run["id"]: run_of(run) for run in runs}, last=last)
    if last is None:
        return view
    # A sequence beyond the last message belongs to a stream that was lost.
    start = view.lease.sequence if view.lease.sequence <= last.sequence else 0
    for _ in range(_MOST_UNPROJECTED):
        message = await _get(broker, {"next_by_subj": subjects.events_of(lease), "seq": start})
        if message is None or message.sequence > last.sequence:
            return "unread"
        view = _judge(view, message)
        if message.sequence == last.sequence:
            return view
        start = message.sequence + 1
    return "unread"


def _judge(view: LeaseView, message: StoredMessage) -> LeaseView:
    """Apply a message as the projector does; applying one again changes nothing."""
    facts = tuple(
        Fact(
            at=event.time,
            worker=message.worker,
            data=event.data,
            completions=completions(event.data, now=event.time)
            if isinstance(event.data, RunsCompleted)
            else (),
        )
        for event in message.events
    )
    arrived = Arrived(worker=message.worker, sequence=message.sequence, predecessor=-1, facts=facts)
    judged = acceptance.judge(view.lease, view.runs, arrived)
    return LeaseView(lease=judged.lease, runs=judged.runs, last=view.last)


async def listen(database: Database, broker: Broker) -> None:
    """Share the lease questions with the other dispatchers."""
    answer = partial(answer_question, database, broker)
    await serve(
        broker,
        service="headway-dispatcher",
        queue=subjects.DISPATCHERS,
        endpoints={subjects.LEASE_QUESTION: typed(LeaseQuestion, answer)},
    )


async def answer_question(
    database: Database, broker: Broker, question: LeaseQuestion
) -> LeaseAnswer:
    """Say which process holds the lease; `undecided` if that is not certain."""
    try:
        view = await read_lease(broker, database, question.lease)
        if view == "unknown":
            return LeaseAnswer(answer="ended", reason="the lease is unknown")
        if view == "unread":
            return LeaseAnswer(answer="undecided", reason="the projector lags behind")
        answer = await _state(broker, question, view)
    except (BrokerUnavailable, DatabaseUnavailable) as error:
        return LeaseAnswer(answer="undecided", reason=str(error))
    own = view.last is not None and view.last.worker == question.worker
    return LeaseAnswer(
        answer=answer,
        sequence=view.sequence,
        stored=[event.id for event in view.last.events] if view.last and own else [],
        ended_runs=[run.id for run in view.runs.values() if run.ended],
    )


async def _state(broker: Broker, question: LeaseQuestion, view: LeaseView) -> LeaseState:
    lease = view.lease
    if lease.ended:
        return "ended"
    if lease.claimed_by is None:
        return "nothing_stored"
    if (lease.claimed_by, lease.nonce) != (question.worker, question.nonce):
        return "another"
    # Refused messages may remain where those of the owner have expired.
    own = view.last and await last_stored(broker, question.lease, question.worker)
    return "mine" if own else "nothing_stored"


def lease_of(row: Any) -> Lease:
    """Read a lease from its row."""
    return msgspec.convert(dict(row), Lease, str_keys=True)


def run_of(row: Any) -> Run:
    """Read a run from its row."""
    if row["state"] == "pending" and not row["activations"]:
        return Run(id=row["id"])
    return msgspec.convert(dict(row), Run)
