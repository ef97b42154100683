"""The fold: computes the rows of a piece of work, its runs and its dead letters from events.

Work is dispatched while there is an ordered run without a later `work.waiting` or `work.settled`.
Only events of the highest round count; `dead_letter.retried` opens the next round. One type of
event fills each column of a run, and the state is the furthest reached. The result does not depend
on the order of the events, nor on duplicates.
"""

from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any
from uuid import UUID

import msgspec
from msgspec import UNSET

from headway_history.events import (
    LEASE_CLAIMED,
    RUN_DISPATCHED,
    RUNS_COMPLETED,
    SNAPSHOT,
    WORK_QUEUED,
    BroughtForward,
    CancelRequested,
    Completed,
    InDoubt,
    LetterResolved,
    Lifecycle,
    Settled,
    StoredEvent,
    Waiting,
    open_claim,
    open_data,
)
from headway_history.rows import LetterRow, LetterRun, RunRow, Snapshot, WorkRow, WorkRows

_ENDS = {
    "headway.run.completed.v1": "completed",
    "headway.run.failed.v1": "failed",
    "headway.run.cancelled.v1": "cancelled",
}
_RETRIED = "headway.dead_letter.retried.v1"

# The events of work whose only run completed; the claim may be missing.
_SHORT_LIFE = frozenset({WORK_QUEUED, RUN_DISPATCHED, LEASE_CLAIMED, RUNS_COMPLETED})

# Data that is read with the times, the source or the type of its event.
_WITH_EVENT = frozenset({CancelRequested, Completed, LetterResolved, Lifecycle})


class _WorkEvents:
    """The events of a piece of work after its newest snapshot, by type of data."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        events = list(events)
        snapshots = [open_data(event) for event in events if event.type == SNAPSHOT]
        self.base: Snapshot | None = max(snapshots, key=attrgetter("covers"), default=None)
        found = _by_kind(events, above=0 if self.base is None else self.base.covers)
        self.received: list[WorkRow] = found.get(WorkRow, [])
        self.ordered: list[RunRow] = found.get(RunRow, [])
        self.waits: list[Waiting] = found.get(Waiting, [])
        self.moves: list[BroughtForward] = found.get(BroughtForward, [])
        self.doubts: list[InDoubt] = found.get(InDoubt, [])
        self.letters: list[LetterRow] = found.get(LetterRow, [])
        self.cancels: list[tuple[StoredEvent, CancelRequested]] = found.get(CancelRequested, [])
        self.resolved: list[tuple[StoredEvent, LetterResolved]] = found.get(LetterResolved, [])
        self.completed: dict[UUID, tuple[StoredEvent, Completed]] = {
            data.run: (event, data) for event, data in found.get(Completed, ())
        }
        self.ends: list[Settled | Completed] = found.get(Settled, []) + [
            data for _, data in self.completed.values() if data.settled_at is not None
        ]
        # Of a run, or of a lease for all of its runs.
        self.lifecycle: dict[UUID | None, list[tuple[StoredEvent, Lifecycle]]] = {}
        for event, data in found.get(Lifecycle, ()):
            self.lifecycle.setdefault(event.run or event.lease, []).append((event, data))
        retries = [data for event, data in self.resolved if event.type == _RETRIED]
        # The retries of dead letters, in the order of rounds.
        self.retries: list[LetterResolved] = sorted(retries, key=attrgetter("round"))
        rounds: list[Any] = [*self.ordered, *self.waits, *self.ends, *self.retries]
        # The highest round that events mention, or 0.
        self.last_round: int = max([data.round for data in rounds], default=0)


def _by_kind(events: Iterable[StoredEvent], *, above: int) -> dict[type, list[Any]]:
    """Return the data of events with higher numbers by its type, some of it with its event."""
    found: dict[type, list[Any]] = {}
    for event in events:
        if event.id > above and event.type != SNAPSHOT:
            data = open_data(event)
            kind = type(data)
            found.setdefault(kind, []).append((event, data) if kind in _WITH_EVENT else data)
    return found


def fold(events: Sequence[StoredEvent]) -> WorkRows:
    """Fold all events of a piece of work and of the leases of its runs."""
    return _fold_short_life(events) or fold_any(events)


def _fold_short_life(events: Sequence[StoredEvent]) -> WorkRows | None:
    """Fold work whose only run completed, like most work; `None` for all other work."""
    found = {event.type: event for event in events}
    claim = found.get(LEASE_CLAIMED)
    if len(found) != len(events) or len(found) != 3 + (claim is not None):
        return None
    if not found.keys() <= _SHORT_LIFE:
        return None
    end = found[RUNS_COMPLETED]
    work: WorkRow = open_data(found[WORK_QUEUED])
    run: RunRow = open_data(found[RUN_DISPATCHED])
    completed: Completed = open_data(end)
    if not (completed.run == run.run_id and completed.round == run.round == work.round):
        return None
    if completed.settled_at is None:
        return None
    if claim is not None:
        if claim.run is not None or claim.lease != run.lease_id:
            return None
        run.host = open_claim(claim.data).host
    work.state, work.outcome, work.settled_at = "settled", "completed", completed.settled_at
    work.runs, work.attempts = work.runs + 1, completed.attempts
    work.run_id, work.lease_id = completed.run, run.lease_id
    run.manifest_id, run.concurrency_key = work.manifest_id, work.concurrency_key
    _apply_completion(run, end, completed)
    _order_times(run)
    return WorkRows(work=work, runs={run.run_id: run})


def fold_any(events: Iterable[StoredEvent]) -> WorkRows:
    """Fold any events, by the rules for all of them."""
    history = _WorkEvents(events)
    work = history.base.work if history.base is not None else _create(history)
    if work is None:
        return WorkRows()
    # The key before the first retry: the fold of the work sets the key of its last round.
    first_key = work.concurrency_key
    _fold_work(work, history)
    runs = _runs(history, work, first_key)
    work.lease_id = runs[work.run_id].lease_id if work.run_id in runs else None
    return WorkRows(work=work, runs=runs, letters=_letters(history, runs))


def _create(history: _WorkEvents) -> WorkRow | None:
    """Return the work as received, or as created by a cancel request that came first."""
    received = min(history.received, key=attrgetter("round"), default=None)
    early = next((event for event in history.cancels if event[1].unknown), None)
    if early is None:
        return received
    event, request = early
    now = event.occurred_at
    work = WorkRow(
        id=request.work,
        round=request.round,
        manifest_id=request.manifest_id,
        manifest=request.manifest,
        group_name=request.group,
        queued_at=now,
        rank=now,
        not_before=now,
        received_at=now,
    )
    if received is not None:
        _fill_in(work, received)
    return work


def _fill_in(work: WorkRow, received: WorkRow) -> None:
    """Set the fields of work that arrived after its cancel request."""
    work.manifest_id, work.manifest = received.manifest_id, received.manifest
    work.slot, work.job = received.slot, received.job
    work.input, work.input_schema = received.input, received.input_schema
    work.cause, work.due_at, work.queued_at = received.cause, received.due_at, received.queued_at
    work.priority, work.rank = received.priority, received.rank
    work.traceparent = received.traceparent


def _fold_work(work: WorkRow, history: _WorkEvents) -> None:
    base, waits = history.base, history.waits
    if base is not None and not work.job:
        for received in history.received:
            _fill_in(work, received)
    if history.last_round > work.round:
        _open_round(work, history)
    known = {run.run_id for run in base.runs} if base is not None else set()
    work.runs += len({run.run_id for run in history.ordered} - known)
    if waits:
        work.exclusive_lease |= any(waiting.exclusive_lease for waiting in waits)
        if any(waiting.begun for waiting in waits):
            work.start_by = None  # the deadline was met
    work.explicit |= bool(history.moves)
    # Continue the trace of the last run or retried dead letter.
    ends: list[Any] = [*waits, *history.retries]
    traced = [data for data in ends if data.traceparent is not None]
    if traced:
        work.traceparent = max(traced, key=attrgetter("runs")).traceparent
    # The first cancel request of the round counts.
    requests = [
        (event.occurred_at, request.reason)
        for event, request in history.cancels
        if request.round == work.round
    ]
    if requests and work.cancel_requested_at is None:
        work.cancel_requested_at, work.cancel_reason = min(requests, key=itemgetter(0))
    _set_place_and_state(work, history)


def _open_round(work: WorkRow, history: _WorkEvents) -> None:
    """Start the round of a retried dead letter with the changes of all retries."""
    work.round, work.state, work.run_id = history.last_round, "queued", None
    work.outcome, work.settled_at, work.attempts = None, None, 0
    # An operator requested it: it does not expire nor wait for its manifest to be enabled.
    work.start_by, work.explicit = None, True
    work.cancel_requested_at, work.cancel_reason = None, None
    work.concurrency_key = _key_in(work.round, work.concurrency_key, history)
    for retry in history.retries:
        work.input = work.input if retry.input is UNSET else retry.input
        work.queued_at = retry.queued_at or work.queued_at
        work.not_before = retry.not_before or work.not_before
        work.rank = retry.rank or work.rank


def _key_in(number: int, first_key: str | None, history: _WorkEvents) -> str | None:
    """Return the concurrency key of a round; a retry with an edited input may change it."""
    key = first_key
    for retry in history.retries:
        if retry.round <= number and retry.concurrency_key is not UNSET:
            key = retry.concurrency_key
    return key


def _set_place_and_state(work: WorkRow, history: _WorkEvents) -> None:
    """Set the earliest start, the rank and the state; moving to the front ends a retry delay."""
    waits = [data for data in history.waits if data.round == work.round]
    waiting = max(waits, key=attrgetter("runs"), default=None)
    if waiting is not None:
        work.not_before, work.attempts = waiting.not_before, waiting.attempts
    since = 0 if waiting is None else waiting.runs
    for moved in history.moves:
        if moved.round == work.round:
            work.rank = min(work.rank, moved.rank)
            if moved.runs >= since:
                work.not_before = min(work.not_before, moved.not_before)
    ends = [data for data in history.ends if data.round == work.round]
    ordered = {run.run_id for run in history.ordered if run.round == work.round}
    ordered -= {data.run for data in waits}
    if ends:
        work.state, work.outcome = "settled", ends[0].outcome
        work.attempts, work.settled_at = ends[0].attempts, ends[0].settled_at
        work.run_id = ends[0].run or work.run_id
    elif ordered:
        work.state, work.run_id = "dispatched", min(ordered)
    elif waiting is not None:
        work.state, work.run_id = "waiting", waiting.run


def _runs(history: _WorkEvents, work: WorkRow, first_key: str | None) -> dict[UUID, RunRow]:
    runs = {run.run_id: run for run in history.base.runs} if history.base is not None else {}
    for run in history.ordered:
        run.manifest_id = work.manifest_id
        run.concurrency_key = _key_in(run.round, first_key, history)
        runs[run.run_id] = run
    for run in runs.values():
        _apply_lifecycle(run, history)
    for doubt in history.doubts:
        doubted = runs.get(doubt.run)
        if doubted is not None:
            doubted.reissued = max(doubted.reissued, doubt.reissued)
            doubted.begun_elsewhere = max(doubted.begun_elsewhere, doubt.begun_elsewhere)
    return runs


def _apply_lifecycle(run: RunRow, history: _WorkEvents) -> None:
    """Apply the workers' events about a run and its lease."""
    for event, data in history.lifecycle.get(run.lease_id, ()):
        run.worker, run.host = event.worker, data.host
    for event, data in history.lifecycle.get(run.run_id, ()):
        run.worker = event.worker or run.worker
        if event.type == "headway.run.started.v1":
            run.started_at, run.start_heard_at = event.occurred_at, event.recorded_at
            run.worker_started_at = data.worker_time
        elif event.type in _ENDS:
            run.state, run.finished_at = _ENDS[event.type], event.occurred_at
            run.worker_finished_at = data.worker_time
            run.failure, run.output, run.cancel_reason = data.failure, data.output, data.reason
        if data.activations:
            run.activations = _merge_activations(run.activations, data.activations)
    if run.run_id in history.completed:
        _apply_completion(run, *history.completed[run.run_id])
    if run.started_at is not None and run.state == "pending":
        run.state = "in_progress"
    _order_times(run)


def _order_times(run: RunRow) -> None:
    """Let a run start after its creation, and end after its start."""
    if run.started_at is not None:
        run.started_at = max(run.started_at, run.created_at)
    if run.finished_at is not None:
        run.finished_at = max(run.finished_at, run.started_at or run.created_at)


def _apply_completion(run: RunRow, event: StoredEvent, completed: Completed) -> None:
    """Apply the end of a run, and its start if no event of its own reported it."""
    run.worker, run.state = event.worker, "completed"
    run.finished_at, run.worker_finished_at = completed.finished_at, completed.worker_finished_at
    run.output = completed.output
    if run.started_at is None:
        run.started_at, run.start_heard_at = completed.started_at, event.recorded_at
        run.worker_started_at = completed.worker_started_at


def _merge_activations(known: Any, more: list[dict[str, Any]]) -> Any:
    """Keep one activation for each dependent and key: the one with the lesser encoded input."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for activation in (*(known or ()), *more):
        name = (activation["manifest"], activation.get("key", ""))
        if name not in merged or _encoded_input(activation) < _encoded_input(merged[name]):
            merged[name] = activation
    return [merged[name] for name in sorted(merged)] or None


def _encoded_input(activation: dict[str, Any]) -> bytes:
    return msgspec.json.encode(activation.get("input"), order="deterministic")


def _letters(history: _WorkEvents, runs: dict[UUID, RunRow]) -> dict[UUID, LetterRow]:
    known = [] if history.base is None else history.base.letters
    letters = {letter.id: letter for letter in [*known, *history.letters]}
    if not letters:
        return letters
    for event, resolved in history.resolved:
        letter = letters.get(resolved.dead_letter)
        if letter is not None:
            letter.state = "retried" if event.type == _RETRIED else "acknowledged"
            letter.resolved_at = resolved.resolved_at
            letter.note, letter.actor = resolved.note or None, resolved.actor
            letter.edit = resolved.edit if event.type == _RETRIED else None
    ordered = sorted(runs.values(), key=attrgetter("created_at", "run_id"))
    for letter in letters.values():
        of_round = [run for run in ordered if run.round == letter.round]
        letter.runs = msgspec.convert(of_round, list[LetterRun], from_attributes=True)
        # An edit counts once the letter is resolved and if it changes something.
        if letter.state == "awaiting" or letter.edit == []:
            letter.edit = None
    return letters
