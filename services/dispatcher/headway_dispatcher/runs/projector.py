"""The projector: accept what workers tell, and project it into the tables.

Under the lock on its lease each event is accepted or refused (`acceptance`), accepted
ones are folded into their run (`folding`), and a run that thereby ends decides about its
work (`settling`). All of that, and the history of it, is one transaction.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from headway_contract import Event, subjects
from headway_contract.control import CancelPush, ReleaseLease
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
from headway_contract.settled import ActivationRequested
from headway_contract.subjects import DISPATCHER
from headway_decisions.runs import acceptance
from headway_decisions.runs.acceptance import Arrived, Judged, Lease
from headway_decisions.runs.folding import Fact, Run, clamp, end_of
from headway_decisions.runs.report_limits import bound_event, storable_json
from headway_history import Record
from headway_history.events import worker_source
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake, Unreadable
from headway_postgres_kit import Clock, Connection, Database, StatementBatch, json_array, note
from headway_postgres_kit import storable as text
from headway_relay import Handover, OutboxMessage, events_in, stamped
from headway_service_kit.after_commit import IGNORED_MESSAGES
from headway_service_kit.passes import Wakeup
from headway_tracing import first_context, span, traceparent
from msgspec import Struct, structs

from headway_dispatcher import store
from headway_dispatcher.history import history_records
from headway_dispatcher.letters import letters
from headway_dispatcher.metrics import EventRefused, Started
from headway_dispatcher.operate.push import push
from headway_dispatcher.outbound_events import activation_message
from headway_dispatcher.runs import settle
from headway_dispatcher.runs.leases import lease_of, run_of
from headway_dispatcher.store import (
    HISTORY,
    OUTBOX,
    REJECTED,
    SOURCE,
    heals,
    leases,
    letter_queries,
    works,
)

logger = logging.getLogger(__name__)


_LINGER_SECONDS = 0.002

# Publishers choose the ids of their events, so an id is unique only within its lease.
_EventKey = tuple[UUID, str]

# The traces in which words were projected: each word's, and the last of each run.
_Contexts = dict[UUID | _EventKey, str]


class Told(Struct, frozen=True, kw_only=True):
    """One message of a lease, read."""

    message: Message
    lease: UUID
    worker: str
    predecessor: int
    fenced: bool
    events: list[Event]

    @property
    def traceparent(self) -> str | None:
        """The trace of the run that the message is about."""
        return next((one.traceparent for one in self.events if one.traceparent), None)


class _Books(Struct):
    """The leases and runs of a batch, as they stand while it is judged."""

    leases: dict[UUID, Lease]
    made_at: dict[UUID, datetime]
    runs: dict[UUID, dict[UUID, Run]]
    work_of: dict[UUID, UUID]
    # The group and due time of runs that a schedule made, if they are first attempts.
    due: dict[UUID, tuple[str, datetime]]
    # Accepted events that woke something new, and what.
    woken: list[tuple[Event, list[Activation]]]
    # Runs whose body a process began that does not hold the lease.
    begun_elsewhere: list[UUID]
    # Claims that do not count, although the broker let them through.
    vain_claims: list[tuple[str, ReleaseLease]]
    # What is wrong with messages of the claimants of leases.
    warnings: dict[UUID, str]

    def work_told(self, data: LeaseEvent) -> UUID | None:
        """The work that an event tells of; none if its lease has the runs of several."""
        if isinstance(data, RunEvent):
            return self.work_of.get(data.run)
        runs = self.runs.get(data.lease, {})
        return self.work_of[next(iter(runs))] if len(runs) == 1 else None


class _Projected(Struct, frozen=True, kw_only=True):
    """What follows a projection, once it is committed.

    `messages` tell of it, `left_in_outbox` says that others may be there which do,
    `last_of_pruned` that a run of a pruned manifest has ended.
    """

    messages: list[OutboxMessage]
    left_in_outbox: bool
    last_of_pruned: bool
    vain_claims: list[tuple[str, ReleaseLease]]


def event_intake(
    database: Database,
    broker: Broker,
    *,
    clock: Clock,
    gate: Wakeup,
    relay: Handover,
    prunes: Wakeup,
) -> Intake:
    """The intake of lifecycle events."""

    async def handle(messages: list[Message]) -> None:
        told = [_read(message) for message in messages]
        with span("projector", messages=len(told)):
            async with database.transaction() as connection:
                projected = await _project(connection, told, clock)
        relay.hand(projected.messages)
        if projected.left_in_outbox:
            relay.call()
        gate.call()
        if projected.last_of_pruned:
            prunes.call()
        for worker, release in projected.vain_claims:
            await push(broker, worker, CancelPush(release=[release]))

    # A short run's outcome comes right behind its start: together they are one write.
    puller = Puller(
        broker,
        subjects.EVENTS_STREAM,
        subjects.EVENTS_CONSUMER,
        linger=_LINGER_SECONDS,
        complete=all_have_gone_on,
    )

    async def warn(message: Message, reason: str) -> None:
        """Note on the lease that a message of its claimant could not be read."""
        try:
            lease, worker = subjects.lease_and_worker(message.subject)
        except ValueError:
            return
        what = f"its message {message.sequence} could not be read ({reason})"
        async with database.acquire() as connection:
            await connection.execute(leases["warn_claimant"], lease, worker, text(what))

    return REJECTED.intake(database, broker, puller, handle, warn=warn)


def all_have_gone_on(messages: Sequence[Message]) -> bool:
    """Whether no lease has only told that it was claimed."""
    claimed: set[str] = set()
    gone_on: set[str] = set()
    for one in messages:
        is_claim = one.headers.get(subjects.EXPECTED_SEQUENCE_HEADER) == "0"
        (claimed if is_claim else gone_on).add(one.subject)
    return claimed <= gone_on


async def _project(connection: Connection, told: list[Told], clock: Clock) -> _Projected:
    """Project messages; tells what is to follow."""
    books, fresh, real = await _open_books(connection, told)
    times = await store.times_at(real, connection, clock)
    now = times.schedule
    before = {run.id: run for runs in books.runs.values() for run in runs.values()}
    records: list[Record] = []
    contexts: _Contexts = {}
    for one in sorted(told, key=lambda told: told.message.sequence):
        with span("project", parent=one.traceparent, lease=str(one.lease)):
            records += _judge(books, one, fresh, now)
            _note_context(contexts, one)
    after = [run for runs in books.runs.values() for run in runs.values()]
    changed = [run for run in after if run != before[run.id]]
    writes = StatementBatch()
    _write(writes, changed, books, times.real)
    ended = {
        books.work_of[run.id]: run for run in changed if run.ended and not before[run.id].ended
    }
    late = {books.work_of[run.id] for run in changed if before[run.id].ended}
    if late or books.begun_elsewhere or any(run.activations for run in changed):
        # The rows of these runs are read and changed by what follows.
        await writes.send(connection)
    if late:
        await _tell_letters(connection, late, ended)
    if books.begun_elsewhere:
        doubted = await connection.fetch(heals["note_begun_elsewhere"], books.begun_elsewhere)
        records += history_records.in_doubt(doubted, now)
    note(*_starts(books, [run for run in changed if before[run.id].started_at is None]))
    # Before the ends of the runs that woke it: what is heard first says whose trace it is.
    woken = await _woken_messages(connection, books.woken, now, contexts)
    OUTBOX.add_to(writes, woken)
    left = await settle.settle(
        connection, ended, now=now, records=records, writes=writes, contexts=contexts
    )
    HISTORY.append_to(writes, records, now=times.real)
    await writes.send(connection)
    # At once, or the next work of the manifest would be in the slot before them.
    await letters.resume_at_once(connection, left.waited_for, now=now)
    return _Projected(
        messages=woken + left.messages,
        left_in_outbox=bool(left.waited_for),
        last_of_pruned=left.last_of_pruned,
        vain_claims=books.vain_claims,
    )


async def _tell_letters(connection: Connection, late: set[UUID], ended: Iterable[UUID]) -> None:
    """Tell letters what was heard of their runs only now.

    Work is locked before letters, and all of it in one order. Whoever makes a letter of it holds
    it: that letter is waited for, or made of what is heard now.
    """
    await connection.execute(letter_queries["lock_works"], sorted(late.union(ended)))
    await connection.execute(letter_queries["tell_runs"], sorted(late))


def _judge(books: _Books, one: Told, fresh: set[_EventKey], now: datetime) -> list[Record]:
    """Judge one message; returns what history keeps of it."""
    lease = books.leases.get(one.lease)
    events = [event for event in one.events if (one.lease, event.id) in fresh]
    fresh.difference_update((one.lease, event.id) for event in events)
    IGNORED_MESSAGES.add("events_applied_before", len(one.events) - len(events))
    facts = tuple(_fact(event, one, books.made_at.get(one.lease, now), now) for event in events)
    if lease is None:
        return [
            _record(event, one, "unknown_lease", fact, None)
            for event, fact in zip(events, facts, strict=True)
        ]
    runs = books.runs.get(lease.id, {})
    judged = acceptance.judge(
        lease,
        runs,
        Arrived(
            worker=one.worker,
            sequence=one.message.sequence,
            predecessor=one.predecessor,
            facts=facts,
        ),
    )
    books.woken += _woken(events, judged, runs)
    books.vain_claims += _vain_claims(one, events, judged)
    books.begun_elsewhere += _begun_elsewhere(events, judged)
    books.leases[lease.id], books.runs[lease.id] = judged.lease, judged.runs
    _report(one, judged)
    warning = _warning(one, events, judged)
    if warning is not None:
        books.warnings[lease.id] = warning
    return [
        _record(
            event,
            one,
            refusal,
            fact if refusal else _as_folded(fact, judged.runs),
            books.work_told(event.data),
        )
        for event, refusal, fact in zip(events, judged.refusals, facts, strict=True)
    ]


def _note_context(contexts: _Contexts, one: Told) -> None:
    """Remember in which trace a run's words were projected, for what follows from them."""
    context = traceparent() if one.traceparent else None
    if context is not None:
        for event in one.events:
            contexts[one.lease, event.id] = context
            if isinstance(event.data, RunEvent):
                contexts[event.data.run] = context


def _woken(
    events: list[Event], judged: Judged, before: dict[UUID, Run]
) -> list[tuple[Event, list[Activation]]]:
    """The accepted activations that their run had not told before."""
    woken = []
    for event, refusal in zip(events, judged.refusals, strict=True):
        if refusal is None and isinstance(event.data, RunActivated):
            known = {(one.manifest, one.key) for one in before[event.data.run].activations}
            new = [one for one in event.data.activations if (one.manifest, one.key) not in known]
            if new:
                woken.append((event, new))
    return woken


def _begun_elsewhere(events: list[Event], judged: Judged) -> list[UUID]:
    """Starts that do not count, but were made: with the right token, by another process."""
    return [
        event.data.run
        for event, refusal in zip(events, judged.refusals, strict=True)
        if isinstance(event.data, RunStarted)
        and refusal in ("not_the_claimant", "lease_ended")
        and event.data.token == judged.lease.token
        and event.data.run in judged.runs
    ]


def _vain_claims(one: Told, events: list[Event], judged: Judged) -> list[tuple[str, ReleaseLease]]:
    """The claims of a message that were refused, with the reason for their worker.

    Not if a process of the same name holds the lease: it would hear it, too. The answer to a
    heartbeat tells processes apart.
    """
    reasons = {"not_the_claimant": "another", "lease_ended": "ended"}
    if one.worker in (DISPATCHER, judged.lease.claimed_by):
        return []
    return [
        (one.worker, ReleaseLease(lease=one.lease, reason=reasons[refusal]))
        for event, refusal in zip(events, judged.refusals, strict=True)
        if isinstance(event.data, LeaseClaimed) and refusal in reasons
    ]


async def _woken_messages(
    connection: Connection,
    woken: list[tuple[Event, list[Activation]]],
    now: datetime,
    contexts: _Contexts,
) -> list[OutboxMessage]:
    """The messages that tell the scheduler what runs have woken."""
    if not woken:
        return []
    runs = await connection.fetch(works["activators"], [event.data.run for event, _ in woken])
    by_run = {row["run_id"]: row for row in runs}
    messages = []
    for event, activations in woken:
        row = by_run[event.data.run]
        if row["manifest_id"] is None:
            logger.warning("run %s has no manifest and can wake nothing", row["run_id"])
            continue
        requested = ActivationRequested(
            work=row["work_id"],
            round=row["round"],
            run=row["run_id"],
            manifest_id=row["manifest_id"],
            manifest=row["manifest"],
            group=row["group_name"],
            activations=activations,
        )
        known = contexts.get((event.data.lease, event.id))
        context = known or first_context(row["traceparent"])
        messages.append(activation_message(requested, event.id, now, context))
    return stamped(messages)


def _starts(books: _Books, runs: list[Run]) -> Iterator[Started]:
    """How late the bodies began of runs that had not begun before."""
    for run in runs:
        if run.started_at is not None and run.id in books.due:
            group, due_at = books.due[run.id]
            yield Started(group, (run.started_at - due_at).total_seconds())


def _report(one: Told, judged: Judged) -> None:
    for refusal in judged.refusals:
        if refusal is not None:
            logger.warning("lease %s: an event of %s refused: %s", one.lease, one.worker, refusal)
            note(EventRefused(refusal))


def _warning(one: Told, events: list[Event], judged: Judged) -> str | None:
    """Say what is wrong with a message of the lease's claimant; None if nothing is."""
    if one.worker == DISPATCHER:
        return None
    for event, refusal in zip(events, judged.refusals, strict=True):
        if refusal == "reserved_kind":
            kind = event.data.failure.kind
            return f"its failure of the kind {kind!r} was refused: only the dispatcher may give it"
    if not one.fenced and None in judged.refusals:
        logger.warning(
            "unfenced message accepted: worker %s, lease %s, sequence %d",
            one.worker,
            one.lease,
            one.message.sequence,
        )
        return f"its message {one.message.sequence} came without the two headers of the fence"
    return None


def _fact(event: Event, one: Told, made_at: datetime, now: datetime) -> Fact:
    """Clamp the time of an event, and keep the worker's own beside it."""
    return Fact(
        at=clamp(event.time, created_at=made_at, now=now),
        worker=one.worker,
        data=event.data,
        worker_time=None if one.worker == DISPATCHER else _in_utc(event.time),
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


def _record(event: Event, one: Told, refusal: str | None, fact: Fact, work: UUID | None) -> Record:
    """An event as history keeps it: without its token, which is secret.

    Its source is who published it, by the subject, and not who it says it is.
    """
    data = msgspec.to_builtins(structs.replace(event.data, token=""))
    del data["token"]
    if fact.worker_time is not None:
        data["worker_time"] = fact.worker_time
    return Record(
        event_id=event.id,
        type=event.type,
        subject=event.subject,
        source=SOURCE if one.worker == DISPATCHER else worker_source(one.worker),
        occurred_at=fact.at,
        data=data,
        accepted=refusal is None,
        refusal=refusal,
        work=work,
        run=event.data.run if isinstance(event.data, RunEvent) else None,
        lease=event.data.lease,
    )


def _read(message: Message) -> Told:
    try:
        lease, worker = subjects.lease_and_worker(message.subject)
        # Without the second header the broker has looked at the publisher's own subject only.
        fenced = message.headers.get(subjects.EXPECTED_SUBJECT_HEADER) == subjects.events_of(lease)
        header = message.headers.get(subjects.EXPECTED_SEQUENCE_HEADER) if fenced else None
        predecessor = -1 if header is None else int(header)
    except ValueError as error:
        raise Unreadable(str(error)) from error
    size = len(message.body)
    known = events_in(structs.replace(message, body=storable_json(message.body)))
    events = [bound_event(one, size) for one in known if isinstance(one.data, LeaseEvent)]
    IGNORED_MESSAGES.add("events_that_are_no_workers", len(known) - len(events))
    return Told(
        message=message,
        lease=lease,
        worker=worker,
        predecessor=predecessor,
        fenced=predecessor >= 0,
        events=events,
    )


async def _open_books(
    connection: Connection, told: list[Told]
) -> tuple[_Books, set[_EventKey], datetime]:
    """Lock the leases in a fixed order and read them and their runs.

    Also returns the events that were never applied before, and PostgreSQL's time.
    """
    keys = [(one.lease, event.id) for one in told for event in one.events]
    known, *rows = await connection.fetch(
        leases["lock"],
        [lease for lease, _ in keys],
        [event for _, event in keys],
        list({one.lease for one in told}),
    )
    runs = await connection.fetch(leases["runs_of"], [row["id"] for row in rows])
    by_lease: dict[UUID, dict[UUID, Run]] = {}
    for row in runs:
        by_lease.setdefault(row["lease_id"], {})[row["run_id"]] = run_of(row)
    books = _Books(
        leases={row["id"]: lease_of(row) for row in rows},
        # Not the lease's own time, which is real: a run's times are schedule time throughout.
        made_at={row["lease_id"]: row["created_at"] for row in runs},
        runs=by_lease,
        work_of={row["run_id"]: row["work_id"] for row in runs},
        due={
            row["run_id"]: (row["group_name"], row["due_at"])
            for row in runs
            if row["attempt"] == 1 and row["due_at"] is not None
        },
        woken=[],
        vain_claims=[],
        begun_elsewhere=[],
        warnings={},
    )
    fresh = set(zip(known["fresh_leases"], known["fresh_events"], strict=True))
    return books, fresh, known["now"]


def _write(writes: StatementBatch, runs: Sequence[Run], books: _Books, now: datetime) -> None:
    known = books.leases.values()
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
        [books.warnings.get(lease.id) for lease in known],
        [run.worker_started_at for run in runs],
        [run.worker_finished_at for run in runs],
    )
