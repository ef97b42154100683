"""Accept or refuse the messages of leases, and fold accepted events into their runs.

Nothing here reads or writes the database: `Batch` holds the locked leases and their runs, and
`judge_message` changes it message by message.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from headway_contract import Event, subjects
from headway_contract.lifecycle import (
    Activation,
    LeaseClaimed,
    LeaseEvent,
    RunActivated,
    RunCancelled,
    RunCompleted,
    RunEvent,
    RunFailed,
    RunStarted,
)
from headway_contract.subjects import DISPATCHER
from headway_contract.worker_protocol import ReleaseLease
from headway_decisions.runs import acceptance
from headway_decisions.runs.acceptance import Arrived, Judged, Lease
from headway_decisions.runs.folding import Fact, Run, clamp, end_of
from headway_decisions.runs.report_limits import bound_event, storable_json
from headway_history import Record
from headway_history.events import worker_source
from headway_jetstream_kit import Message
from headway_jetstream_kit.consume import Unreadable
from headway_postgres_kit import note
from headway_relay import events_in
from headway_service_kit.ignored_messages import IGNORED_MESSAGES
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_dispatcher.metrics import EventRefused, Started
from headway_dispatcher.store import SOURCE

log = get_logger(__name__)

# Publishers choose the ids of their events, so an id is unique only within its lease.
EventKey = tuple[UUID, str]

_RELEASE_REASONS = {"not_the_claimant": "another", "lease_ended": "ended"}


class LeaseMessage(Struct, frozen=True, kw_only=True):
    """One message of a lease, decoded."""

    message: Message
    lease: UUID
    worker: str
    predecessor: int
    fenced: bool
    events: list[Event]

    @property
    def traceparent(self) -> str | None:
        """The trace of the run that the message is about."""
        return next((event.traceparent for event in self.events if event.traceparent), None)


class Batch(Struct):
    """The leases and runs of a batch of messages, while it is judged."""

    leases: dict[UUID, Lease]
    created_at: dict[UUID, datetime]
    runs: dict[UUID, dict[UUID, Run]]
    work_of: dict[UUID, UUID]
    # The group and due time of scheduled runs that are first attempts.
    due: dict[UUID, tuple[str, datetime]]
    # Events that were never applied.
    fresh: set[EventKey]
    # Accepted events with new activations.
    activated: list[tuple[Event, list[Activation]]] = []
    # Runs whose body a process began that does not hold the lease.
    begun_elsewhere: list[UUID] = []
    # Workers whose claim was refused after the broker accepted it.
    refused_claims: list[tuple[str, ReleaseLease]] = []
    # Problems with messages of a lease's claimant.
    warnings: dict[UUID, str] = {}

    def work_for(self, data: LeaseEvent) -> UUID | None:
        """Return the work of an event; `None` if its lease has several runs."""
        if isinstance(data, RunEvent):
            return self.work_of.get(data.run)
        runs = self.runs.get(data.lease, {})
        return self.work_of[next(iter(runs))] if len(runs) == 1 else None

    def starts(self, runs: Iterable[Run]) -> Iterator[Started]:
        """Yield the start delay of runs that have begun."""
        for run in runs:
            if run.started_at is not None and run.id in self.due:
                group, due_at = self.due[run.id]
                yield Started(group, (run.started_at - due_at).total_seconds())


def read_message(message: Message) -> LeaseMessage:
    """Decode a message; raises `Unreadable`."""
    try:
        lease, worker = subjects.lease_and_worker(message.subject)
        # Without the second header the broker compared only the publisher's own subject.
        fenced = message.headers.get(subjects.EXPECTED_SUBJECT_HEADER) == subjects.events_of(lease)
        header = message.headers.get(subjects.EXPECTED_SEQUENCE_HEADER) if fenced else None
        predecessor = -1 if header is None else int(header)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    size = len(message.body)
    known = events_in(structs.replace(message, body=storable_json(message.body)))
    events = [bound_event(event, size) for event in known if isinstance(event.data, LeaseEvent)]
    IGNORED_MESSAGES.add("events_that_are_no_workers", len(known) - len(events))
    return LeaseMessage(
        message=message,
        lease=lease,
        worker=worker,
        predecessor=predecessor,
        fenced=predecessor >= 0,
        events=events,
    )


def judge_message(batch: Batch, message: LeaseMessage, now: datetime) -> list[Record]:
    """Judge one message and change the batch; returns the history records."""
    lease = batch.leases.get(message.lease)
    events = [event for event in message.events if (message.lease, event.id) in batch.fresh]
    batch.fresh.difference_update((message.lease, event.id) for event in events)
    IGNORED_MESSAGES.add("events_applied_before", len(message.events) - len(events))
    created_at = batch.created_at.get(message.lease, now)
    facts = tuple(_fact(event, message, created_at, now) for event in events)
    if lease is None:
        return [
            _record(event, message, "unknown_lease", fact, None)
            for event, fact in zip(events, facts, strict=True)
        ]
    runs = batch.runs.get(lease.id, {})
    judged = acceptance.judge(
        lease,
        runs,
        Arrived(
            worker=message.worker,
            sequence=message.message.sequence,
            predecessor=message.predecessor,
            facts=facts,
        ),
    )
    batch.activated += _activated(events, judged, runs)
    batch.refused_claims += _refused_claims(message, events, judged)
    batch.begun_elsewhere += _begun_elsewhere(events, judged)
    batch.leases[lease.id], batch.runs[lease.id] = judged.lease, judged.runs
    _log_refusals(message, judged)
    warning = _warning(message, events, judged)
    if warning is not None:
        batch.warnings[lease.id] = warning
    return [
        _record(
            event,
            message,
            refusal,
            fact if refusal else _as_folded(fact, judged.runs),
            batch.work_for(event.data),
        )
        for event, refusal, fact in zip(events, judged.refusals, facts, strict=True)
    ]


def _activated(
    events: list[Event], judged: Judged, before: dict[UUID, Run]
) -> list[tuple[Event, list[Activation]]]:
    """Return accepted events with activations that their run had not reported."""
    activated = []
    for event, refusal in zip(events, judged.refusals, strict=True):
        if refusal is None and isinstance(event.data, RunActivated):
            known = {(each.manifest, each.key) for each in before[event.data.run].activations}
            new = [
                each for each in event.data.activations if (each.manifest, each.key) not in known
            ]
            if new:
                activated.append((event, new))
    return activated


def _begun_elsewhere(events: list[Event], judged: Judged) -> list[UUID]:
    """Return runs with a refused start that another process made with the right token."""
    return [
        event.data.run
        for event, refusal in zip(events, judged.refusals, strict=True)
        if isinstance(event.data, RunStarted)
        and refusal in ("not_the_claimant", "lease_ended")
        and event.data.token == judged.lease.token
        and event.data.run in judged.runs
    ]


def _refused_claims(
    message: LeaseMessage, events: list[Event], judged: Judged
) -> list[tuple[str, ReleaseLease]]:
    """Return refused claims with the reason for their worker.

    None if a process of the same name holds the lease, because it would receive the push too. The
    reply to a heartbeat distinguishes processes.
    """
    if message.worker in (DISPATCHER, judged.lease.claimed_by):
        return []
    return [
        (message.worker, ReleaseLease(lease=message.lease, reason=_RELEASE_REASONS[refusal]))
        for event, refusal in zip(events, judged.refusals, strict=True)
        if isinstance(event.data, LeaseClaimed) and refusal in _RELEASE_REASONS
    ]


def _log_refusals(message: LeaseMessage, judged: Judged) -> None:
    for refusal in judged.refusals:
        if refusal is not None:
            log.warning("event refused", lease=message.lease, worker=message.worker, reason=refusal)
            note(EventRefused(refusal))


def _warning(message: LeaseMessage, events: list[Event], judged: Judged) -> str | None:
    """Return the problem with a message of the lease's claimant; `None` if it has none."""
    if message.worker == DISPATCHER:
        return None
    for event, refusal in zip(events, judged.refusals, strict=True):
        if refusal == "reserved_kind":
            kind = event.data.failure.kind
            return f"its failure of the kind {kind!r} was refused: only the dispatcher may give it"
    sequence = message.message.sequence
    if not message.fenced and None in judged.refusals:
        log.warning(
            "unfenced message accepted",
            worker=message.worker,
            lease=message.lease,
            sequence=sequence,
        )
        return f"its message {sequence} came without the two headers of the fence"
    return None


def _fact(event: Event, message: LeaseMessage, created_at: datetime, now: datetime) -> Fact:
    """Clamp the time of an event, and keep the worker's own time beside it."""
    return Fact(
        at=clamp(event.time, created_at=created_at, now=now),
        worker=message.worker,
        data=event.data,
        worker_time=None if message.worker == DISPATCHER else _in_utc(event.time),
    )


def _in_utc(time: datetime) -> datetime | None:
    """Convert to UTC; returns `None` for a time outside the years 1 to 9999 there."""
    try:
        return time.astimezone(UTC)
    except OverflowError:
        return None


def _as_folded(fact: Fact, runs: dict[UUID, Run]) -> Fact:
    """Give an accepted outcome the time at which its run ended."""
    if isinstance(fact.data, RunCompleted | RunFailed | RunCancelled):
        return structs.replace(fact, at=end_of(runs[fact.data.run], fact.at))
    return fact


def _record(
    event: Event, message: LeaseMessage, refusal: str | None, fact: Fact, work: UUID | None
) -> Record:
    """Return the history record of an event, without its secret token.

    Its source is the publisher that the subject names, not the one that the event names.
    """
    data = msgspec.to_builtins(structs.replace(event.data, token=""))
    del data["token"]
    if fact.worker_time is not None:
        data["worker_time"] = fact.worker_time
    return Record(
        event_id=event.id,
        type=event.type,
        subject=event.subject,
        source=SOURCE if message.worker == DISPATCHER else worker_source(message.worker),
        occurred_at=fact.at,
        data=data,
        accepted=refusal is None,
        refusal=refusal,
        work=work,
        run=event.data.run if isinstance(event.data, RunEvent) else None,
        lease=event.data.lease,
    )
