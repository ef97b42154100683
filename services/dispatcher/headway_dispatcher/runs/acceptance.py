"""Accept or refuse the messages of leases, and fold accepted events into their runs.

Nothing here reads or writes the database: `Batch` holds the locked leases and their runs, and
`judge_message` changes it message by message.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any
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
    RunsCompleted,
    RunStarted,
)
from headway_contract.subjects import DISPATCHER
from headway_contract.worker_protocol import ReleaseLease
from headway_decisions.runs import acceptance
from headway_decisions.runs.acceptance import Arrived, Judged, Lease, Refusal
from headway_decisions.runs.folding import Fact, Run, clamp, completions, end_of, in_utc
from headway_decisions.runs.report_limits import bound_event, storable_json
from headway_history import Record
from headway_history.events import worker_source
from headway_jetstream_kit import Message
from headway_jetstream_kit.consume import Unreadable
from headway_postgres_kit import note
from headway_relay import events_in
from headway_service_kit.ignored_messages import count_ignored
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_dispatcher.metrics import EVENTS_REFUSED, START_LATENESS, Sample
from headway_dispatcher.store import SOURCE

log = get_logger(__name__)

# Publishers choose the ids of their events, so an id is unique only within its lease.
EventKey = tuple[UUID, str]

# Refusals of messages that another process than the holder of the lease published.
_RELEASE_REASONS: dict[Refusal, str] = {"not_the_claimant": "another", "lease_ended": "ended"}


class LeaseMessage(Struct, frozen=True, kw_only=True):
    """One message of a lease, decoded."""

    sequence: int
    lease: UUID
    worker: str
    predecessor: int
    events: list[Event]

    @property
    def traceparent(self) -> str | None:
        """The trace of the run that the message is about."""
        return next((event.traceparent for event in self.events if event.traceparent), None)


class Batch(Struct):
    """The leases and runs of a batch of messages, while it is judged."""

    leases: dict[UUID, Lease]
    jobs: dict[UUID, str]
    created_at: dict[UUID, datetime]
    runs: dict[UUID, dict[UUID, Run]]
    work_of: dict[UUID, UUID]
    lease_of: dict[UUID, UUID]
    attempts: dict[UUID, int]
    # Runs of which nothing was written.
    without_row: set[UUID]
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
    # Completed runs in packed records.
    packed_runs: dict[UUID, dict[str, Any]] = {}
    # Durations of completed runs in seconds, by job.
    durations: dict[str, list[float]] = {}

    def is_short(self, run: Run) -> bool:
        """Whether a completed run is written for the first time, with nothing but its end."""
        is_new = run.id in self.without_row and run.id not in self.begun_elsewhere
        return is_new and run.started_at is not None and not run.activations

    def work_for(self, data: LeaseEvent) -> UUID | None:
        """Return the work of an event; `None` if its lease has several runs."""
        if isinstance(data, RunEvent):
            return self.work_of.get(data.run)
        runs = self.runs.get(data.lease, {})
        return self.work_of[next(iter(runs))] if len(runs) == 1 else None

    def note_duration(self, lease: UUID, run: Run, data: LeaseEvent) -> None:
        """Note the duration of a completed run."""
        if isinstance(data, RunCompleted) and run.started_at is not None and run.finished_at:
            seconds = data.seconds
            if seconds is None:
                seconds = (run.finished_at - run.started_at).total_seconds()
            self.durations.setdefault(self.jobs[lease], []).append(seconds)

    def note_starts(self, runs: Iterable[Run]) -> None:
        """Note the start delay of runs that have begun."""
        for run in runs:
            if run.started_at is not None and run.id in self.due:
                group, due_at = self.due[run.id]
                delay = (run.started_at - due_at).total_seconds()
                note(Sample(START_LATENESS, (group,), delay))


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
    of_leases = [event for event in known if isinstance(event.data, LeaseEvent)]
    count_ignored("events_that_are_no_workers", len(known) - len(of_leases))
    events = [bound for event in of_leases for bound in bound_event(event, size)]
    return LeaseMessage(
        sequence=message.sequence,
        lease=lease,
        worker=worker,
        predecessor=predecessor,
        events=events,
    )


def judge_message(batch: Batch, message: LeaseMessage, now: datetime) -> list[Record]:
    """Judge one message and change the batch; returns the history records."""
    lease = batch.leases.get(message.lease)
    events = [event for event in message.events if (message.lease, event.id) in batch.fresh]
    batch.fresh.difference_update((message.lease, event.id) for event in events)
    count_ignored("events_applied_before", len(message.events) - len(events))
    created_at = batch.created_at.get(message.lease, now)
    facts = tuple(_fact(event, message, created_at, now) for event in events)
    if lease is None:
        return [
            _record(event, message, fact, None, "unknown_lease")
            for event, fact in zip(events, facts, strict=True)
        ]
    before = batch.runs.get(lease.id, {})
    arrived = Arrived(
        worker=message.worker,
        sequence=message.sequence,
        predecessor=message.predecessor,
        facts=facts,
    )
    judged = acceptance.judge(lease, before, arrived)
    batch.leases[lease.id], batch.runs[lease.id] = judged.lease, judged.runs
    records = []
    for event, fact, refusal in zip(events, facts, judged.refusals, strict=True):
        final = fact
        if refusal is not None:
            _handle_refusal(batch, message, event, refusal, judged)
        elif isinstance(event.data, RunActivated):
            known = {(each.manifest, each.key) for each in before[event.data.run].activations}
            activations = event.data.activations
            new = [each for each in activations if (each.manifest, each.key) not in known]
            if new:
                batch.activated.append((event, new))
        elif isinstance(event.data, RunsCompleted):
            records += _packed_records(batch, event, message, fact, judged)
            continue
        elif isinstance(event.data, RunCompleted | RunFailed | RunCancelled):
            # The time at which its run ended.
            final = structs.replace(fact, at=end_of(judged.runs[event.data.run], fact.at))
            batch.note_duration(lease.id, judged.runs[event.data.run], event.data)
        records.append(_record(event, message, final, batch.work_for(event.data), refusal))
    warning = _warning(message, events, judged)
    if warning is not None:
        batch.warnings[lease.id] = warning
    return records


def _handle_refusal(
    batch: Batch, message: LeaseMessage, event: Event, refusal: Refusal, judged: Judged
) -> None:
    """Count a refused event; note a start elsewhere, and a claim to be released."""
    worker, data, lease = message.worker, event.data, judged.lease
    log.warning("event refused", lease=message.lease, worker=worker, reason=refusal)
    note(Sample(EVENTS_REFUSED, (refusal,)))
    if refusal not in _RELEASE_REASONS:
        return
    if isinstance(data, RunStarted) and data.token == lease.token and data.run in judged.runs:
        batch.begun_elsewhere.append(data.run)
    # A process of the same name that holds the lease would receive the push, too. The reply to a
    # heartbeat distinguishes processes.
    if isinstance(data, LeaseClaimed) and worker not in (DISPATCHER, lease.claimed_by):
        release = ReleaseLease(lease=message.lease, reason=_RELEASE_REASONS[refusal])
        batch.refused_claims.append((worker, release))


def _warning(message: LeaseMessage, events: list[Event], judged: Judged) -> str | None:
    """Return the problem with a message of the lease's claimant; `None` if it has none."""
    worker, sequence = message.worker, message.sequence
    if worker == DISPATCHER:
        return None
    for event, refusal in zip(events, judged.refusals, strict=True):
        if refusal == "reserved_kind":
            kind = event.data.failure.kind
            return f"its failure of the kind {kind!r} was refused: only the dispatcher may give it"
    if message.predecessor < 0 and None in judged.refusals:
        log.warning(
            "unfenced message accepted", worker=worker, lease=message.lease, sequence=sequence
        )
        return f"its message {sequence} came without the two headers of the fence"
    return None


def _fact(event: Event, message: LeaseMessage, created_at: datetime, now: datetime) -> Fact:
    """Clamp the time of an event, and keep the worker's own time beside it."""
    packed = isinstance(event.data, RunsCompleted)
    return Fact(
        at=clamp(event.time, created_at=created_at, now=now),
        worker=message.worker,
        data=event.data,
        worker_time=None if message.worker == DISPATCHER else in_utc(event.time),
        completions=completions(event.data, created_at=created_at, now=now) if packed else (),
    )


def _packed_records(
    batch: Batch, event: Event, message: LeaseMessage, fact: Fact, judged: Judged
) -> list[Record]:
    """Return one record for all completed runs of an event, and one for each refused run."""
    data: RunsCompleted = event.data
    by_run = {run.run: run for run in data.runs}
    refused = judged.refused_runs
    records = []
    for run, refusal in refused.items():
        rights: dict[str, Any] = {"lease": data.lease, "token": data.token, "nonce": data.nonce}
        single = structs.replace(
            event,
            id=f"{event.id}.{run}",
            type=RunCompleted.type,
            subject=str(run),
            data=RunCompleted(**rights, run=run, output=by_run[run].output),
        )
        _handle_refusal(batch, message, single, refusal, judged)
        records.append(_record(single, message, fact, batch.work_of.get(run), refusal))
    completed = [each for each in fact.completions if each.run not in refused]
    if completed:
        durations = batch.durations.setdefault(batch.jobs[data.lease], [])
        durations += [by_run[each.run].seconds for each in completed]
        # One run of several is found by its lease.
        single_work = batch.work_for(data)
        packed = [_packed_run(judged.runs[each.run], batch.work_of[each.run]) for each in completed]
        batch.packed_runs |= {run["run"]: run for run in packed}
        records.append(
            Record(
                event_id=event.id,
                type=event.type,
                subject=event.subject,
                source=worker_source(message.worker),
                occurred_at=fact.at,
                data={
                    "lease": data.lease,
                    "nonce": data.nonce,
                    "runs": packed,
                },
                work=single_work,
                run=completed[0].run if single_work is not None else None,
                lease=data.lease,
            )
        )
    return records


def _packed_run(run: Run, work: UUID) -> dict[str, Any]:
    """Return a completed run for the record of its lease."""
    return {
        "run": run.id,
        "work": work,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "worker_started_at": run.worker_started_at,
        "worker_finished_at": run.worker_finished_at,
        "output": run.output,
    }


def _record(
    event: Event, message: LeaseMessage, fact: Fact, work: UUID | None, refusal: str | None
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
