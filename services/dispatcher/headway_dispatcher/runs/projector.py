"""The projector: project lifecycle events of workers into the tables.

One transaction locks the leases of a batch, judges its messages (`acceptance`), writes the changed
runs and leases, settles the work of ended runs (`settle`), and appends the history.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headway_contract import Event, subjects
from headway_contract.lifecycle import Activation, RunEvent, RunsCompleted
from headway_contract.settled import ActivationRequested
from headway_contract.worker_protocol import CancelPush
from headway_decisions.runs.folding import Run
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake
from headway_postgres_kit import Connection, Database, StatementBatch, json_array
from headway_postgres_kit import storable as text
from headway_relay import OutboxMessage, stamped
from headway_tracing import first_context, span, traceparent
from headway_tracing.log import get_logger

from headway_dispatcher import store
from headway_dispatcher.events import doubt_record, outbox_message, own_event
from headway_dispatcher.runs import settle
from headway_dispatcher.runs.acceptance import (
    Batch,
    EventKey,
    LeaseMessage,
    judge_message,
    read_message,
)
from headway_dispatcher.runs.completed import settle_completed
from headway_dispatcher.runs.heartbeats import push_to_worker
from headway_dispatcher.runs.leases import lease_of, run_of
from headway_dispatcher.runs.settle import Changes
from headway_dispatcher.store import OUTBOX, REJECTED, heals, leases, letter_queries, works
from headway_dispatcher.wakeups import Wakeups

log = get_logger(__name__)

_LINGER_SECONDS = 0.002

# The traces in which events were projected: of each event, and the last of each run.
_Contexts = dict[UUID | EventKey, str]


def event_intake(database: Database, broker: Broker, wake: Wakeups) -> Intake:
    """Return the intake of lifecycle events."""

    async def handle(messages: list[Message]) -> None:
        arrived = [read_message(message) for message in messages]
        changes = Changes()
        with span("projector", messages=len(arrived)):
            async with database.transaction() as connection:
                batch = await _project(connection, database, arrived, changes)
        wake.relay.hand(changes.messages)
        if changes.freed:
            # The outbox has the messages about retried letters.
            wake.relay.call()
        wake.gate.call()
        wake.durations.add(batch.durations)
        if changes.pruned:
            wake.prunes.call()
        for worker, release in batch.refused_claims:
            await push_to_worker(broker, worker, CancelPush(release=[release]))

    # A short run's outcome follows right behind its start: together they are one write.
    puller = Puller(
        broker,
        subjects.EVENTS_STREAM,
        subjects.EVENTS_CONSUMER,
        linger=_LINGER_SECONDS,
        complete=no_claim_alone,
    )

    async def warn(message: Message, reason: str) -> None:
        """Note on the lease that a message of its claimant could not be read."""
        try:
            lease, worker = subjects.lease_and_worker(message.subject)
        except ValueError:
            return
        problem = f"its message {message.sequence} could not be read ({reason})"
        async with database.acquire() as connection:
            await connection.execute(leases["warn_claimant"], lease, worker, text(problem))

    return REJECTED.intake(database, broker, puller, handle, warn=warn)


def no_claim_alone(messages: Sequence[Message]) -> bool:
    """Whether every claim in a batch is followed by another message of its lease."""
    claimed: set[str] = set()
    continued: set[str] = set()
    for message in messages:
        is_claim = message.headers.get(subjects.EXPECTED_SEQUENCE_HEADER) == "0"
        (claimed if is_claim else continued).add(message.subject)
    return claimed <= continued


async def _project(
    connection: Connection, database: Database, messages: list[LeaseMessage], changes: Changes
) -> Batch:
    """Project messages; returns the judged batch."""
    batch, real = await _lock(connection, messages)
    times = await store.read_times(connection, database, real=real)
    now = times.schedule
    before = {run.id: run for runs in batch.runs.values() for run in runs.values()}
    contexts: _Contexts = {}
    for message in sorted(messages, key=lambda each: each.sequence):
        with span("project", parent=message.traceparent, lease=str(message.lease)):
            changes.records += judge_message(batch, message, now)
            _note_context(contexts, message)
    after = [run for runs in batch.runs.values() for run in runs.values()]
    changed = [run for run in after if run != before[run.id]]
    ended = {
        batch.work_of[run.id]: run for run in changed if run.ended and not before[run.id].ended
    }
    completed = {work: run for work, run in ended.items() if run.state == "completed"}
    short = {
        run.id: batch.created_at[batch.lease_of[run.id]]
        for run in completed.values()
        if batch.is_short(run)
    }
    writes = StatementBatch()
    _write(writes, [run for run in changed if run.id not in short], batch, times.real)
    late = {batch.work_of[run.id] for run in changed if before[run.id].ended}
    if late or batch.begun_elsewhere or any(run.activations for run in changed):
        # The following statements read and change the rows of these runs.
        await writes.send(connection)
    if late:
        # Dead letters copy late reports of runs. Work is locked before letters, and in one order. A
        # transaction that creates a letter holds the work: this one waits for it, or that one
        # copies the new report.
        await connection.execute(letter_queries["lock_works"], sorted(late.union(ended)))
        await connection.execute(letter_queries["update_runs"], sorted(late))
    if batch.begun_elsewhere:
        await connection.execute(heals["keep_runs"], batch.begun_elsewhere)
        rows = await connection.fetch(heals["note_begun_elsewhere"], batch.begun_elsewhere)
        changes.records += [doubt_record(row, now) for row in rows]
    batch.note_starts(run for run in changed if before[run.id].started_at is None)
    # Before the ends of the runs: the scheduler takes the trace from the first message.
    activations = await _activation_messages(connection, batch.activated, now, contexts)
    OUTBOX.add_to(writes, activations)
    changes.messages += activations
    changes.packed_runs = batch.packed_runs
    if completed:
        # All work in one order, before any of it changes.
        await connection.execute(works["lock_ids"], sorted(ended))
        await settle_completed(
            connection,
            completed,
            new=short,
            times=times,
            changes=changes,
            writes=writes,
            contexts=contexts,
        )
    if failed := {work: run for work, run in ended.items() if work not in completed}:
        await settle.settle(
            connection, failed, now=now, changes=changes, writes=writes, contexts=contexts
        )
    await changes.write(connection, writes, now=now, real=times.real)
    return batch


async def _lock(connection: Connection, messages: list[LeaseMessage]) -> tuple[Batch, datetime]:
    """Lock the leases in a fixed order and read them with their runs; also PostgreSQL's time."""
    keys = [(message.lease, event.id) for message in messages for event in message.events]
    first, *rows = await connection.fetch(
        leases["lock"],
        [lease for lease, _ in keys],
        [event for _, event in keys],
        list({message.lease for message in messages}),
    )
    runs = await connection.fetch(leases["runs_of"], [row["id"] for row in rows])
    by_lease: dict[UUID, dict[UUID, Run]] = {}
    for row in runs:
        by_lease.setdefault(row["lease_id"], {})[row["id"]] = run_of(row)
    batch = Batch(
        leases={row["id"]: lease_of(row) for row in rows},
        jobs={row["id"]: row["job"] for row in rows},
        # Not the lease's own time, which is real: times of runs are schedule time.
        created_at={row["lease_id"]: row["created_at"] for row in runs},
        runs=by_lease,
        work_of={row["id"]: row["work_id"] for row in runs},
        lease_of={row["id"]: row["lease_id"] for row in runs},
        attempts={row["id"]: row["attempt"] for row in runs},
        without_row={row["id"] for row in runs if not row["has_row"]},
        due={
            row["id"]: (row["group_name"], row["due_at"])
            for row in runs
            if row["attempt"] == 1 and row["due_at"] is not None
        },
        fresh=set(zip(first["fresh_leases"], first["fresh_events"], strict=True)),
    )
    return batch, first["now"]


def _note_context(contexts: _Contexts, message: LeaseMessage) -> None:
    """Remember the trace in which a message was projected, for its consequences."""
    context = traceparent() if message.traceparent else None
    if context is not None:
        for event in message.events:
            contexts[message.lease, event.id] = context
            if isinstance(event.data, RunEvent):
                contexts[event.data.run] = context
            elif isinstance(event.data, RunsCompleted):
                contexts |= {run.run: context for run in event.data.runs}


def _write(writes: StatementBatch, runs: Sequence[Run], batch: Batch, now: datetime) -> None:
    known = batch.leases.values()
    writes.add(
        leases["write"],
        [run.id for run in runs],
        [run.state for run in runs],
        [run.worker for run in runs],
        [run.host for run in runs],
        [run.started_at for run in runs],
        [run.finished_at for run in runs],
        json_array(run.failure for run in runs),
        json_array(run.output for run in runs),
        [run.cancel_reason for run in runs],
        json_array(run.activations or None for run in runs),
        now,
        [lease.id for lease in known],
        [lease.claimed_by for lease in known],
        [lease.nonce for lease in known],
        [lease.sequence for lease in known],
        json_array(lease.loose_links for lease in known),
        [lease.ended for lease in known],
        [batch.warnings.get(lease.id) for lease in known],
        [run.worker_started_at for run in runs],
        [run.worker_finished_at for run in runs],
        [lease.host for lease in known],
        [batch.work_of[run.id] for run in runs],
        [batch.lease_of[run.id] for run in runs],
        [batch.attempts[run.id] for run in runs],
    )


async def _activation_messages(
    connection: Connection,
    activated: list[tuple[Event, list[Activation]]],
    now: datetime,
    contexts: _Contexts,
) -> list[OutboxMessage]:
    """Return the messages to the scheduler about new activations."""
    if not activated:
        return []
    rows = await connection.fetch(works["activators"], [event.data.run for event, _ in activated])
    by_run = {row["run"]: dict(row) for row in rows}
    traces = {run: first_context(row.pop("traceparent")) for run, row in by_run.items()}
    messages = []
    for event, activations in activated:
        row = by_run[event.data.run]
        if row["manifest_id"] is None:
            log.warning("activations ignored: run has no manifest", run=row["run"])
            continue
        requested = ActivationRequested(**row, activations=activations)
        published = own_event(
            requested,
            id=f"activation.{requested.run}.{event.id}",
            subject=requested.run,
            time=now,
            traceparent=contexts.get((event.data.lease, event.id)) or traces[requested.run],
        )
        messages.append(outbox_message(published))
    return stamped(messages)
