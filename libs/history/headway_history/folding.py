"""The fold: computes the rows of a piece of work from its events.

- `work.queued` creates the work. `run.dispatched` creates a run and takes the work out of the
  queue; `work.waiting` puts it back after the run that it names; `work.settled` ends the round. So
  work is dispatched while there is an ordered run without a later event.
- Only events of the highest round count. `dead_letter.retried` opens the next round.
- One type of event fills each column of a run, and the state is the furthest reached. A start is
  not before the creation, and an end not before the start: if older history says otherwise, the
  later time counts.
- A dead letter contains the runs of its round.

The result does not depend on the order of the events, nor on duplicates.
"""

from collections.abc import Iterable
from operator import attrgetter, itemgetter
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

from headway_history.events import (
    SNAPSHOT,
    BroughtForward,
    CancelRequested,
    Dispatched,
    InDoubt,
    LetterCreated,
    LetterResolved,
    Lifecycle,
    Queued,
    Settled,
    StoredEvent,
    Waiting,
    open_data,
)
from headway_history.rows import LetterRow, LetterRun, RunRow, Snapshot, WorkRow, WorkRows

_ENDS = {
    "headway.run.completed.v1": "completed",
    "headway.run.failed.v1": "failed",
    "headway.run.cancelled.v1": "cancelled",
}
_RETRIED = "headway.dead_letter.retried.v1"

_Data = TypeVar("_Data", bound=Struct)

_snapshots = msgspec.json.Decoder(Snapshot)


class _WorkEvents:
    """The events of a piece of work, by type of data."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        self._by_kind: dict[type[Struct], list[tuple[StoredEvent, Any]]] = {}
        self.of_runs: dict[UUID, list[tuple[StoredEvent, Lifecycle]]] = {}
        self.of_leases: dict[UUID, list[tuple[StoredEvent, Lifecycle]]] = {}
        for event in events:
            data = open_data(event)
            if not isinstance(data, Lifecycle):
                self._by_kind.setdefault(type(data), []).append((event, data))
            elif event.run is not None:
                self.of_runs.setdefault(event.run, []).append((event, data))
            elif event.lease is not None:
                self.of_leases.setdefault(event.lease, []).append((event, data))

    def events(self, kind: type[_Data]) -> list[tuple[StoredEvent, _Data]]:
        """Return the events of a kind."""
        return self._by_kind.get(kind, [])

    def in_round(self, kind: type[_Data], number: int) -> list[_Data]:
        """Return the data of the events of a kind in a round."""
        return [data for _, data in self.events(kind) if data.round == number]  # type: ignore[attr-defined]

    @property
    def rounds(self) -> list[int]:
        """The rounds that events mention."""
        kinds: list[type[Any]] = [Dispatched, Waiting, Settled]
        rounds = [data.round for kind in kinds for _, data in self.events(kind)]
        return rounds + [data.round for data in self.retries]

    @property
    def retries(self) -> list[LetterResolved]:
        """The retries of dead letters, in the order of rounds."""
        found = [data for event, data in self.events(LetterResolved) if event.type == _RETRIED]
        return sorted(found, key=attrgetter("round"))


def fold(events: Iterable[StoredEvent]) -> WorkRows:
    """Fold all events of a piece of work and of the leases of its runs."""
    events = list(events)
    base = _newest_snapshot(events)
    covers = 0 if base is None else base.covers
    history = _WorkEvents(event for event in events if event.id > covers)
    began_with = _first_key(history, base)
    work = _work(history, base)
    if work is None:
        return WorkRows()
    runs = _runs(history, base, work, began_with)
    return WorkRows(work=work, runs=runs, letters=_letters(history, base, runs))


def _newest_snapshot(events: list[StoredEvent]) -> Snapshot | None:
    snapshots = [_snapshots.decode(event.data) for event in events if event.type == SNAPSHOT]
    return max(snapshots, key=attrgetter("covers"), default=None)


def _work(history: _WorkEvents, base: Snapshot | None) -> WorkRow | None:
    work = base.work if base is not None else _create(history)
    if work is None:
        return None
    if base is not None and not work.job:
        for _, queued in history.events(Queued):
            _fill_in(work, queued)
    latest = max([work.round, *history.rounds])
    if latest > work.round:
        _open_round(work, latest, history)
    known = {run.run_id for run in base.runs} if base is not None else set()
    work.runs += len({order.run for _, order in history.events(Dispatched)} - known)
    work.exclusive_lease = work.exclusive_lease or any(
        waiting.exclusive_lease for _, waiting in history.events(Waiting)
    )
    if any(waiting.begun for _, waiting in history.events(Waiting)):
        work.start_by = None  # the deadline was met
    work.explicit = work.explicit or bool(history.events(BroughtForward))
    _set_trace(work, history)
    _set_cancel(work, history)
    _set_place(work, history)
    _set_state(work, history)
    return work


def _create(history: _WorkEvents) -> WorkRow | None:
    """Return the work as received, or as created by a cancel request that came first."""
    first = min(history.events(Queued), key=lambda event: event[1].round, default=None)
    early = next((event for event in history.events(CancelRequested) if event[1].unknown), None)
    if early is None:
        return None if first is None else _received(*first)
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
    if first is not None:
        _fill_in(work, first[1])
    return work


def _received(event: StoredEvent, queued: Queued) -> WorkRow:
    work = WorkRow(
        id=queued.work,
        round=queued.round,
        group_name=queued.group,
        queued_at=queued.queued_at,
        rank=queued.rank,
        not_before=queued.not_before or queued.queued_at,
        terms=queued.terms,
        received_at=event.occurred_at,
        start_by=queued.start_by,
        concurrency_key=queued.concurrency_key,
        explicit=queued.explicit,
    )
    _fill_in(work, queued)
    return work


def _fill_in(work: WorkRow, queued: Queued) -> None:
    """Set the fields that also work with an earlier cancel request receives."""
    work.manifest_id, work.manifest = queued.manifest_id, queued.manifest
    work.slot, work.job = queued.slot, queued.job
    work.input, work.input_schema = queued.input, queued.input_schema
    work.cause, work.due_at, work.queued_at = queued.cause, queued.due_at, queued.queued_at
    work.priority, work.rank = queued.priority, queued.rank
    work.traceparent = queued.traceparent


def _open_round(work: WorkRow, number: int, history: _WorkEvents) -> None:
    """Start the round of a retried dead letter with the changes of all retries."""
    work.round, work.state, work.run_id = number, "queued", None
    work.outcome, work.settled_at, work.attempts = None, None, 0
    # An operator requested it: it does not expire nor wait for its manifest to be enabled.
    work.start_by, work.explicit = None, True
    work.cancel_requested_at, work.cancel_reason = None, None
    for retry in history.retries:
        work.input = work.input if retry.input is UNSET else retry.input
        if retry.concurrency_key is not UNSET:
            work.concurrency_key = retry.concurrency_key
        work.queued_at = retry.queued_at or work.queued_at
        work.not_before = retry.not_before or work.not_before
        work.rank = retry.rank or work.rank


def _first_key(history: _WorkEvents, base: Snapshot | None) -> str | None:
    """Return the concurrency key before the first retry."""
    if base is not None:
        return base.work.concurrency_key
    queued = [data for _, data in history.events(Queued)]
    first = min(queued, key=attrgetter("round"), default=None)
    return None if first is None else first.concurrency_key


def _key_in(number: int, began_with: str | None, history: _WorkEvents) -> str | None:
    """Return the concurrency key of a round; a retry with an edited input may change it."""
    key = began_with
    for retry in history.retries:
        if retry.round <= number and retry.concurrency_key is not UNSET:
            key = retry.concurrency_key
    return key


def _set_trace(work: WorkRow, history: _WorkEvents) -> None:
    """Continue the trace of the last run or retried dead letter."""
    waits: list[Waiting | LetterResolved] = [data for _, data in history.events(Waiting)]
    traced = [data for data in [*waits, *history.retries] if data.traceparent is not None]
    if traced:
        work.traceparent = max(traced, key=attrgetter("runs")).traceparent


def _set_cancel(work: WorkRow, history: _WorkEvents) -> None:
    """Apply the first cancel request of the round."""
    requests = [
        (event.occurred_at, request.reason)
        for event, request in history.events(CancelRequested)
        if request.round == work.round
    ]
    if requests and work.cancel_requested_at is None:
        work.cancel_requested_at, work.cancel_reason = min(requests, key=itemgetter(0))


def _set_place(work: WorkRow, history: _WorkEvents) -> None:
    """Set the earliest start and the rank; moving work to the front overrides its retry delay."""
    waiting = _latest_wait(work, history)
    if waiting is not None:
        work.not_before = waiting.not_before
    since = 0 if waiting is None else waiting.runs
    for moved in history.in_round(BroughtForward, work.round):
        work.rank = min(work.rank, moved.rank)
        if moved.runs >= since:
            work.not_before = min(work.not_before, moved.not_before)


def _set_state(work: WorkRow, history: _WorkEvents) -> None:
    """Set the state: settled, dispatched, waiting for a retry, or still queued."""
    waiting, ends = _latest_wait(work, history), history.in_round(Settled, work.round)
    if waiting is not None:
        work.attempts = waiting.attempts
    ended = {data.run for data in history.in_round(Waiting, work.round)}
    ordered = {data.run for data in history.in_round(Dispatched, work.round)} - ended
    if ends:
        work.state, work.outcome = "settled", ends[0].outcome
        work.attempts, work.settled_at = ends[0].attempts, ends[0].settled_at
        work.run_id = ends[0].run or work.run_id
    elif ordered:
        work.state, work.run_id = "dispatched", min(ordered)
    elif waiting is not None:
        work.state, work.run_id = "waiting", waiting.run


def _latest_wait(work: WorkRow, history: _WorkEvents) -> Waiting | None:
    return max(history.in_round(Waiting, work.round), key=attrgetter("runs"), default=None)


def _runs(
    history: _WorkEvents, base: Snapshot | None, work: WorkRow, began_with: str | None
) -> dict[UUID, RunRow]:
    runs = {run.run_id: run for run in base.runs} if base is not None else {}
    for event, order in history.events(Dispatched):
        key = _key_in(order.round, began_with, history)
        runs[order.run] = _ordered(event, order, work, key)
    for run in runs.values():
        _apply_lifecycle(run, history)
    for _, doubt in history.events(InDoubt):
        doubted = runs.get(doubt.run)
        if doubted is not None:
            doubted.reissued = max(doubted.reissued, doubt.reissued)
            doubted.begun_elsewhere = max(doubted.begun_elsewhere, doubt.begun_elsewhere)
    return runs


def _ordered(event: StoredEvent, order: Dispatched, work: WorkRow, key: str | None) -> RunRow:
    return RunRow(
        run_id=order.run,
        work_id=order.work,
        lease_id=order.lease,
        manifest_id=work.manifest_id,
        group_name=order.group,
        job=order.job,
        round=order.round,
        attempt=order.attempt,
        due_at=order.due_at,
        created_at=event.occurred_at,
        max_run_seconds=order.max_run_seconds,
        trace_id=order.trace_id,
        concurrency_key=key,
    )


def _apply_lifecycle(run: RunRow, history: _WorkEvents) -> None:
    """Apply the workers' events about a run and its lease."""
    for event, data in history.of_leases.get(run.lease_id, ()):
        run.worker, run.host = event.worker, data.host
    for event, data in history.of_runs.get(run.run_id, ()):
        run.worker = event.worker or run.worker
        if event.type == "headway.run.started.v1":
            run.started_at, run.start_heard_at = event.occurred_at, event.recorded_at
            run.worker_started_at = data.worker_time
        elif event.type in _ENDS:
            run.state, run.finished_at = _ENDS[event.type], event.occurred_at
            run.worker_finished_at = data.worker_time
            run.failure, run.output, run.cancel_reason = data.failure, data.output, data.reason
        run.activations = _merge_activations(run.activations, data.activations)
    if run.started_at is not None and run.state == "pending":
        run.state = "in_progress"
    if run.started_at is not None:
        run.started_at = max(run.started_at, run.created_at)
    if run.finished_at is not None:
        run.finished_at = max(run.finished_at, run.started_at or run.created_at)


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


def _letters(
    history: _WorkEvents, base: Snapshot | None, runs: dict[UUID, RunRow]
) -> dict[UUID, LetterRow]:
    letters = {letter.id: letter for letter in base.letters} if base is not None else {}
    for event, created in history.events(LetterCreated):
        letters[created.dead_letter] = _letter(event, created)
    for event, resolved in history.events(LetterResolved):
        letter = letters.get(resolved.dead_letter)
        if letter is not None:
            letter.state = "retried" if event.type == _RETRIED else "acknowledged"
            letter.resolved_at = resolved.resolved_at
            letter.note, letter.actor = resolved.note or None, resolved.actor
            letter.edit = resolved.edit if event.type == _RETRIED else None
    for letter in letters.values():
        letter.runs = _runs_of(letter, runs)
        # An edit counts once the letter is resolved and if it changes something.
        if letter.state == "awaiting" or letter.edit == []:
            letter.edit = None
    return letters


def _runs_of(letter: LetterRow, runs: dict[UUID, RunRow]) -> list[LetterRun]:
    """Return the runs of the letter's round in order."""
    of_round = [run for run in runs.values() if run.round == letter.round]
    return [
        LetterRun(
            run=run.run_id,
            attempt=run.attempt,
            state=run.state,
            worker=run.worker,
            host=run.host,
            created_at=run.created_at,
            started_at=run.started_at,
            finished_at=run.finished_at,
            failure=run.failure,
        )
        for run in sorted(of_round, key=attrgetter("created_at", "run_id"))
    ]


def _letter(event: StoredEvent, created: LetterCreated) -> LetterRow:
    return LetterRow(
        id=created.dead_letter,
        work_id=created.work,
        round=created.round,
        manifest_id=created.manifest_id,
        group_name=created.group,
        job=created.job,
        input=created.input,
        reason=created.reason,
        failure=created.failure,
        attempts=created.attempts,
        created_at=event.occurred_at,
        manifest=created.manifest,
        fingerprint=created.fingerprint,
        code_version=created.code_version,
    )
