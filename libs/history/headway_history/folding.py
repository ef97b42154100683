"""The fold: what history says one piece of work, its runs and its dead letters should be.

This code decides nothing and shares nothing with what writes the tables. It only knows what
each event means:

- `work.queued` makes the work. `run.dispatched` makes a run and takes the work out of the queue;
  `work.waiting` puts it back after the run that it names; `work.settled` ends the round. So work
  is dispatched while there is an ordered run that nothing has followed.
- Events of the highest round count. `dead_letter.retried` opens the next one.
- Of a run, each column is filled by one kind of event, and the state is the furthest reached.
  Its start is not before its creation, and its end not before its start: where older history
  says otherwise, the later time counts.
- A dead letter has the runs of its round as they are.

Nothing here depends on the order of the events or on how often one is given.
"""

from collections.abc import Iterable
from operator import attrgetter
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Struct

from headway_history.retained import (
    SNAPSHOT,
    BroughtForward,
    CancelRequested,
    Dispatched,
    InDoubt,
    Kept,
    LetterCreated,
    LetterResolved,
    Lifecycle,
    Queued,
    Settled,
    Waiting,
    open_data,
)
from headway_history.rows import LetterRow, LetterRun, RunRow, Snapshot, WorkRow

_ENDS = {
    "headway.run.completed.v1": "completed",
    "headway.run.failed.v1": "failed",
    "headway.run.cancelled.v1": "cancelled",
}
_RETRIED = "headway.dead_letter.retried.v1"

_Data = TypeVar("_Data", bound=Struct)

_snapshots = msgspec.json.Decoder(Snapshot)


class Folded(Struct, kw_only=True):
    """One piece of work as it should be; none if history does not tell how it began."""

    work: WorkRow | None = None
    runs: dict[UUID, RunRow] = {}
    letters: dict[UUID, LetterRow] = {}


class _Told:
    """What counts of the events of one piece of work, by kind."""

    def __init__(self, events: Iterable[Kept]) -> None:
        self._by_kind: dict[type[Struct], list[tuple[Kept, Any]]] = {}
        self.of_runs: dict[UUID, list[tuple[Kept, Lifecycle]]] = {}
        self.of_leases: dict[UUID, list[tuple[Kept, Lifecycle]]] = {}
        for event in events:
            data = open_data(event)
            if not isinstance(data, Lifecycle):
                self._by_kind.setdefault(type(data), []).append((event, data))
            elif event.run is not None:
                self.of_runs.setdefault(event.run, []).append((event, data))
            elif event.lease is not None:
                self.of_leases.setdefault(event.lease, []).append((event, data))

    def events(self, kind: type[_Data]) -> list[tuple[Kept, _Data]]:
        """The events of one kind."""
        return self._by_kind.get(kind, [])

    def in_round(self, kind: type[_Data], number: int) -> list[_Data]:
        """What the events of one kind say, of one round."""
        return [data for _, data in self.events(kind) if data.round == number]  # type: ignore[attr-defined]

    @property
    def rounds(self) -> list[int]:
        """Every round that the work is known to have been in."""
        kinds: list[type[Any]] = [Dispatched, Waiting, Settled]
        rounds = [data.round for kind in kinds for _, data in self.events(kind)]
        return rounds + [data.round for data in self.retries]

    @property
    def retries(self) -> list[LetterResolved]:
        """What people retried, the first one first."""
        found = [data for kept, data in self.events(LetterResolved) if kept.type == _RETRIED]
        return sorted(found, key=attrgetter("round"))


def fold(events: Iterable[Kept]) -> Folded:
    """Fold all events of one piece of work, and of the leases that its runs were under."""
    events = list(events)
    base = _newest_snapshot(events)
    covers = 0 if base is None else base.covers
    told = _Told(event for event in events if event.id > covers)
    began_with = _first_key(told, base)
    work = _work(told, base)
    if work is None:
        return Folded()
    runs = _runs(told, base, work, began_with)
    return Folded(work=work, runs=runs, letters=_letters(told, base, runs))


def _newest_snapshot(events: list[Kept]) -> Snapshot | None:
    snapshots = [_snapshots.decode(event.data) for event in events if event.type == SNAPSHOT]
    return max(snapshots, key=attrgetter("covers"), default=None)


def _work(told: _Told, base: Snapshot | None) -> WorkRow | None:
    work = base.work if base is not None else _begun(told)
    if work is None:
        return None
    if base is not None and not work.job:
        for _, queued in told.events(Queued):
            _fill_in(work, queued)
    latest = max([work.round, *told.rounds])
    if latest > work.round:
        _open_round(work, latest, told)
    known = {run.run_id for run in base.runs} if base is not None else set()
    work.runs += len({order.run for _, order in told.events(Dispatched)} - known)
    work.alone = work.alone or any(one.alone for _, one in told.events(Waiting))
    if any(one.begun for _, one in told.events(Waiting)):
        work.start_by = None  # it was kept
    work.explicit = work.explicit or bool(told.events(BroughtForward))
    _traced(work, told)
    _cancelled(work, told)
    _placed(work, told)
    _stands(work, told)
    return work


def _begun(told: _Told) -> WorkRow | None:
    """Work as it was taken in; what was cancelled before it came keeps what that had set."""
    first = min(told.events(Queued), key=lambda one: one[1].round, default=None)
    early = next((one for one in told.events(CancelRequested) if one[1].unknown), None)
    if early is None:
        return None if first is None else _taken_in(*first)
    kept, request = early
    now = kept.occurred_at
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


def _taken_in(kept: Kept, queued: Queued) -> WorkRow:
    work = WorkRow(
        id=queued.work,
        round=queued.round,
        group_name=queued.group,
        queued_at=queued.queued_at,
        rank=queued.rank,
        not_before=queued.not_before or queued.queued_at,
        terms=queued.terms,
        received_at=kept.occurred_at,
        start_by=queued.start_by,
        concurrency_key=queued.concurrency_key,
        explicit=queued.explicit,
    )
    _fill_in(work, queued)
    return work


def _fill_in(work: WorkRow, queued: Queued) -> None:
    """What even work that was cancelled before it came gets to know of itself."""
    work.manifest_id, work.manifest = queued.manifest_id, queued.manifest
    work.slot, work.job = queued.slot, queued.job
    work.input, work.input_schema = queued.input, queued.input_schema
    work.cause, work.due_at, work.queued_at = queued.cause, queued.due_at, queued.queued_at
    work.priority, work.rank = queued.priority, queued.rank
    work.traceparent = queued.traceparent


def _open_round(work: WorkRow, number: int, told: _Told) -> None:
    """A dead letter that was retried lets its work begin anew; what retries changed adds up."""
    work.round, work.state, work.run_id = number, "queued", None
    work.outcome, work.settled_at, work.attempts = None, None, 0
    # Somebody asked for it: it neither expires nor waits for its manifest to be enabled.
    work.start_by, work.explicit = None, True
    work.cancel_requested_at, work.cancel_reason = None, None
    for retry in told.retries:
        work.input = work.input if retry.input is UNSET else retry.input
        if retry.concurrency_key is not UNSET:
            work.concurrency_key = retry.concurrency_key
        work.queued_at = retry.queued_at or work.queued_at
        work.not_before = retry.not_before or work.not_before
        work.rank = retry.rank or work.rank


def _first_key(told: _Told, base: Snapshot | None) -> str | None:
    """The concurrency key that the work had before any retry that is told of."""
    if base is not None:
        return base.work.concurrency_key
    first = min((one for _, one in told.events(Queued)), key=attrgetter("round"), default=None)
    return None if first is None else first.concurrency_key


def _key_in(number: int, began_with: str | None, told: _Told) -> str | None:
    """The concurrency key of a round: a retry with an edited input may have changed it."""
    key = began_with
    for retry in told.retries:
        if retry.round <= number and retry.concurrency_key is not UNSET:
            key = retry.concurrency_key
    return key


def _traced(work: WorkRow, told: _Told) -> None:
    """Each run goes on in the trace that the one before it, or a retried letter, has left."""
    left: list[Waiting | LetterResolved] = [one for _, one in told.events(Waiting)]
    left += [data for kept, data in told.events(LetterResolved) if kept.type == _RETRIED]
    left = [one for one in left if one.traceparent is not None]
    if left:
        work.traceparent = max(left, key=attrgetter("runs")).traceparent


def _cancelled(work: WorkRow, told: _Told) -> None:
    """The first request of the round is the one that counts."""
    requests = [one for one in told.events(CancelRequested) if one[1].round == work.round]
    first = min(requests, key=lambda one: one[0].occurred_at, default=None)
    if first is not None and work.cancel_requested_at is None:
        work.cancel_requested_at, work.cancel_reason = first[0].occurred_at, first[1].reason


def _placed(work: WorkRow, told: _Told) -> None:
    """When it may run, and its place in the queue.

    The retry after the latest run says when, unless somebody brought it forward after that.
    """
    waiting = _latest_wait(work, told)
    if waiting is not None:
        work.not_before = waiting.not_before
    since = 0 if waiting is None else waiting.runs
    for one in told.in_round(BroughtForward, work.round):
        work.rank = min(work.rank, one.rank)
        if one.runs >= since:
            work.not_before = min(work.not_before, one.not_before)


def _stands(work: WorkRow, told: _Told) -> None:
    """Where the round is: settled, with a worker, waiting for a retry, or still in the queue."""
    waiting, ends = _latest_wait(work, told), told.in_round(Settled, work.round)
    if waiting is not None:
        work.attempts = waiting.attempts
    followed = {one.run for one in told.in_round(Waiting, work.round)}
    ordered = {one.run for one in told.in_round(Dispatched, work.round)} - followed
    if ends:
        work.state, work.outcome = "settled", ends[0].outcome
        work.attempts, work.settled_at = ends[0].attempts, ends[0].settled_at
        work.run_id = ends[0].run or work.run_id
    elif ordered:
        work.state, work.run_id = "dispatched", min(ordered)
    elif waiting is not None:
        work.state, work.run_id = "waiting", waiting.run


def _latest_wait(work: WorkRow, told: _Told) -> Waiting | None:
    return max(told.in_round(Waiting, work.round), key=attrgetter("runs"), default=None)


def _runs(
    told: _Told, base: Snapshot | None, work: WorkRow, began_with: str | None
) -> dict[UUID, RunRow]:
    runs = {run.run_id: run for run in base.runs} if base is not None else {}
    for kept, order in told.events(Dispatched):
        key = _key_in(order.round, began_with, told)
        runs[order.run] = _ordered(kept, order, work, key)
    for run in runs.values():
        _live(run, told)
    for _, doubt in told.events(InDoubt):
        doubted = runs.get(doubt.run)
        if doubted is not None:
            doubted.reissued = max(doubted.reissued, doubt.reissued)
            doubted.begun_elsewhere = max(doubted.begun_elsewhere, doubt.begun_elsewhere)
    return runs


def _ordered(kept: Kept, order: Dispatched, work: WorkRow, key: str | None) -> RunRow:
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
        created_at=kept.occurred_at,
        patience_seconds=order.patience_seconds,
        trace_id=order.trace_id,
        concurrency_key=key,
    )


def _live(run: RunRow, told: _Told) -> None:
    """What workers told of one run, and of the lease that it was under."""
    for kept, data in told.of_leases.get(run.lease_id, ()):
        run.worker, run.host = kept.worker, data.host
    for kept, data in told.of_runs.get(run.run_id, ()):
        run.worker = kept.worker or run.worker
        if kept.type == "headway.run.started.v1":
            run.started_at, run.start_heard_at = kept.occurred_at, kept.recorded_at
            run.worker_started_at = data.worker_time
        elif kept.type in _ENDS:
            run.state, run.finished_at = _ENDS[kept.type], kept.occurred_at
            run.worker_finished_at = data.worker_time
            run.failure, run.output, run.cancel_reason = data.failure, data.output, data.reason
        run.activations = _united(run.activations, data.activations)
    if run.started_at is not None and run.state == "pending":
        run.state = "in_progress"
    _clamp(run)


def _clamp(run: RunRow) -> None:
    """Put the times of a run in order."""
    if run.started_at is not None:
        run.started_at = max(run.started_at, run.created_at)
    if run.finished_at is not None:
        run.finished_at = max(run.finished_at, run.started_at or run.created_at)


def _united(known: Any, more: list[dict[str, Any]]) -> Any:
    """One for each dependent and key, by name; of two inputs the one that is spelled lesser."""
    united: dict[tuple[str, str], dict[str, Any]] = {}
    for one in (*(known or ()), *more):
        named = (one["manifest"], one.get("key", ""))
        if named not in united or _spelled(one) < _spelled(united[named]):
            united[named] = one
    return [united[named] for named in sorted(united)] or None


def _spelled(activation: dict[str, Any]) -> bytes:
    return msgspec.json.encode(activation.get("input"), order="deterministic")


def _letters(told: _Told, base: Snapshot | None, runs: dict[UUID, RunRow]) -> dict[UUID, LetterRow]:
    letters = {letter.id: letter for letter in base.letters} if base is not None else {}
    for kept, created in told.events(LetterCreated):
        letters[created.dead_letter] = _letter(kept, created)
    for kept, resolved in told.events(LetterResolved):
        letter = letters.get(resolved.dead_letter)
        if letter is not None:
            letter.state = "retried" if kept.type == _RETRIED else "acknowledged"
            letter.resolved_at = resolved.resolved_at
            letter.note, letter.actor = resolved.note or None, resolved.actor
            letter.edit = resolved.edit if kept.type == _RETRIED else None
    for letter in letters.values():
        letter.runs = _runs_of(letter, runs)
        # A wish that waits for its slot is no edit yet, and what changes nothing is none.
        if letter.state == "awaiting" or letter.edit == []:
            letter.edit = None
    return letters


def _runs_of(letter: LetterRow, runs: dict[UUID, RunRow]) -> list[LetterRun]:
    """The runs of the round that ended in a letter, the first one first."""
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


def _letter(kept: Kept, created: LetterCreated) -> LetterRow:
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
        created_at=kept.occurred_at,
        manifest=created.manifest,
        fingerprint=created.fingerprint,
        code_version=created.code_version,
    )
