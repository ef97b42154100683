"""What follows the end of a run: settle its work, try again, or ask for a person.

Work that somebody wants to end early, or whose manifest is gone, is never tried again.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_clock import jitter, new_id
from headway_contract import Event
from headway_contract.lifecycle import Activation, Failure
from headway_contract.settled import DeadLetterCreated, Outcome, WorkSettled
from headway_contract.work import WorkTerms
from headway_decisions.retries import retries
from headway_decisions.retries.dead_letters import fingerprint
from headway_decisions.retries.retries import DeadLetter, Retry
from headway_decisions.runs import reaping
from headway_decisions.runs.folding import Run, unite
from headway_decisions.runs.transitions import WorkMove, next_work_state
from headway_history import Record
from headway_postgres_kit import Connection, StatementBatch, json_array, note
from headway_relay import OutboxMessage, stamped
from headway_tracing import CONTEXTS_APART, first_context, span, traceparent
from msgspec import Struct, structs

from headway_dispatcher.history import history_records
from headway_dispatcher.metrics import Retried, Settled
from headway_dispatcher.outbound_events import (
    dead_letter_event,
    fitting,
    messages_of,
    settled_event,
)
from headway_dispatcher.store import HISTORY, OUTBOX, works

# Why work of a manifest that is gone does not run (again).
PRUNED = "manifest was pruned"
# Why work does not run whose time to begin is over.
EXPIRED = "it had not begun by the time that was set for it"


class _Settled(Struct, frozen=True, kw_only=True):
    row: Any
    outcome: Outcome
    attempts: int
    letter: UUID | None = None
    reason: str = ""
    failure: Failure | None = None
    # The trace in which it was decided, if that is recorded.
    context: str | None = None

    @property
    def fingerprint(self) -> str:
        """Equal for failures that are the same one."""
        return "" if self.failure is None else fingerprint(self.row["job"], self.failure)


class Settling(Struct, frozen=True, kw_only=True):
    """What settling leaves to do.

    `messages` tell of what was settled, `waited_for` are manifests in whose slot dead letters
    wait for their turn, `last_of_pruned` says that work of a pruned manifest has ended, which may
    now be deleted.
    """

    messages: list[OutboxMessage] = []
    waited_for: set[UUID] = set()
    last_of_pruned: bool = False


class _Again(Struct, frozen=True, kw_only=True):
    row: Any
    retry: Retry
    # Whether the body of the run that failed had begun.
    begun: bool
    # What the next attempt's trace goes on from, and is linked to; none leaves it as it is.
    context: str | None


async def settle(
    connection: Connection,
    ended: dict[UUID, Run],
    *,
    now: datetime,
    records: list[Record],
    writes: StatementBatch,
    contexts: Mapping[Any, str] = MappingProxyType({}),
) -> Settling:
    """Decide about the work of runs that have just ended; `ended` is by work id.

    `contexts` are the traces in which their ends were projected, by run. What history is to keep
    is added to `records`, and what is left to be written to `writes`; what is there already is
    sent before dead letters are made, which tell how their runs ended.
    """
    if not ended:
        return Settling()
    rows = await connection.fetch(works["lock"], sorted(ended))
    settled: list[_Settled] = []
    again: list[_Again] = []
    for row in rows:
        run, main = ended[row["id"]], first_context(row["traceparent"])
        with span("settle", parent=contexts.get(run.id, main), work=str(row["id"])) as current:
            verdict = _decide(row, run, now)
            context = traceparent()
            if isinstance(verdict, Retry):
                current.set_attribute("headway.outcome", "retry")
                linked = CONTEXTS_APART.join((main, context)) if main and context else None
                begun = run.started_at is not None
                again.append(_Again(row=row, retry=verdict, begun=begun, context=linked))
            else:
                current.set_attribute("headway.outcome", verdict.outcome)
                settled.append(structs.replace(verdict, context=context))
    await _write_retries(connection, again)
    if any(one.letter is not None for one in settled):
        await writes.send(connection)
    versions = await _write_letters(connection, settled, now)
    messages = _write_settled(writes, settled, now, versions)
    records += [_keep_waiting(one, now) for one in again]
    records += [record for one in settled for record in _keep(one, now, versions)]
    return Settling(
        messages=messages,
        waited_for=_waited_for(rows),
        last_of_pruned=any(row["pruned"] for row in rows),
    )


async def cancel(
    connection: Connection,
    waiting: Sequence[tuple[Any, str]],
    *,
    now: datetime,
    records: list[Record],
) -> set[UUID]:
    """Settle work that waits as cancelled: rows that are locked, and the reason of each.

    Tells in which manifests' slots dead letters wait for their turn.
    """
    settled = []
    for row, reason in waiting:
        next_work_state(row["state"], "cancelled")
        settled.append(
            _traced(_Settled(row=row, outcome="cancelled", attempts=row["attempts"], reason=reason))
        )
    writes = StatementBatch()
    _write_settled(writes, settled, now)
    await writes.send(connection)
    records += [record for one in settled for record in _keep(one, now, {})]
    return _waited_for([row for row, _ in waiting])


async def expire(connection: Connection, waiting: Sequence[Any], *, now: datetime) -> set[UUID]:
    """Settle work that has not begun in time: rows that are locked. Tells the same."""
    settled = [_traced(_expired(row)) for row in waiting]
    writes = StatementBatch()
    _write_settled(writes, settled, now)
    HISTORY.append_to(writes, [record for one in settled for record in _keep(one, now, {})])
    await writes.send(connection)
    return _waited_for(waiting)


def _traced(settled: _Settled) -> _Settled:
    """Work that has ended without a run, told in its own trace."""
    row = settled.row
    main = first_context(row["traceparent"])
    if main is None:
        return settled
    with span("settle", parent=main, work=str(row["id"]), outcome=settled.outcome):
        return structs.replace(settled, context=traceparent())


def _waited_for(rows: Iterable[Any]) -> set[UUID]:
    """The manifests in whose slots dead letters wait for their turn."""
    return {row["manifest_id"] for row in rows if row["letters_wait"]}


def _decide(row: Any, run: Run, now: datetime) -> _Settled | Retry:
    """One verdict for one piece of work; the table of transitions has the last word."""
    if run.failure is None:
        return _as_it_ended(row, run)
    verdict = retries.after_failure(
        msgspec.convert(row["terms"], WorkTerms).retry,
        run.failure,
        attempts=row["attempts"],
        uncounted=row["round_runs"] - 1 - row["attempts"],
        now=now,
        chance=jitter(),
    )
    if row["cancel_requested_at"] is not None or row["pruned"]:
        next_work_state(row["state"], "cancelled")
        reason = PRUNED if row["cancel_reason"] is None else row["cancel_reason"]
        return _Settled(row=row, outcome="cancelled", attempts=verdict.attempts, reason=reason)
    move: WorkMove = "retry" if isinstance(verdict, Retry) else "dead_lettered"
    next_work_state(row["state"], move)
    if isinstance(verdict, DeadLetter):
        return _Settled(
            row=row,
            outcome="dead_lettered",
            attempts=verdict.attempts,
            letter=new_id(),
            reason=verdict.reason,
            failure=run.failure,
        )
    return verdict


def _as_it_ended(row: Any, run: Run) -> _Settled:
    """Work whose run did not fail. One that was taken back unbegun was no attempt."""
    if reaping.expired_before_start(
        row["start_by"], run, cancel_requested=row["cancel_requested_at"] is not None
    ):
        return _expired(row)
    ending: Literal["completed", "cancelled"] = (
        "completed" if run.state == "completed" else "cancelled"
    )
    next_work_state(row["state"], ending)
    begun = ending == "completed" or run.started_at is not None
    return _Settled(
        row=row,
        outcome=ending,
        attempts=row["attempts"] + begun,
        reason=run.cancel_reason or "",
    )


def _expired(row: Any) -> _Settled:
    next_work_state(row["state"], "expired")
    return _Settled(row=row, outcome="expired", attempts=row["attempts"], reason=EXPIRED)


async def _write_retries(connection: Connection, again: Sequence[_Again]) -> None:
    if again:
        await connection.execute(
            works["retry"],
            [one.row["id"] for one in again],
            [one.retry.at for one in again],
            [one.retry.reason for one in again],
            [one.retry.attempts for one in again],
            [one.context for one in again],
            [one.retry.alone for one in again],
            [one.begun for one in again],
        )
        note(*(Retried(one.row["group_name"], one.row["job"], one.retry.reason) for one in again))


def _fact(one: _Settled) -> Settled:
    """The end of work as it is counted."""
    letter = one.reason if one.letter is not None else None
    return Settled(one.row["group_name"], one.row["job"], one.outcome, letter)


def _write_settled(
    writes: StatementBatch,
    settled: Sequence[_Settled],
    now: datetime,
    versions: Mapping[UUID, str] = MappingProxyType({}),
) -> list[OutboxMessage]:
    """Settle work, and tell of it by the messages that are returned."""
    messages = stamped(messages_of([told for one in settled for told in _tell(one, now, versions)]))
    if settled:
        writes.add(
            works["settle"],
            [one.row["id"] for one in settled],
            [one.outcome for one in settled],
            [one.attempts for one in settled],
            now,
        )
        OUTBOX.add_to(writes, messages)
    note(*map(_fact, settled))
    return messages


async def _write_letters(
    connection: Connection, settled: Sequence[_Settled], now: datetime
) -> dict[UUID, str]:
    """Make dead letters; returns which version of the code each is of."""
    parted = [one for one in settled if one.letter is not None]
    if not parted:
        return {}
    rows = await connection.fetch(
        works["add_dead_letters"],
        [one.letter for one in parted],
        [one.row["id"] for one in parted],
        [one.row["round"] for one in parted],
        [one.row["manifest_id"] for one in parted],
        [one.row["manifest"] for one in parted],
        [one.row["group_name"] for one in parted],
        [one.row["job"] for one in parted],
        json_array(one.row["input"] for one in parted),
        [one.reason for one in parted],
        json_array(one.failure for one in parted),
        [one.attempts for one in parted],
        [one.fingerprint for one in parted],
        [one.row["run_id"] for one in parted],
        now,
    )
    return {row["id"]: row["code_version"] for row in rows}


def _tell(one: _Settled, now: datetime, versions: Mapping[UUID, str]) -> list[Event]:
    context = one.context or first_context(one.row["traceparent"])
    events = [settled_event(_end(one, now), context)]
    if one.letter is not None:
        created = _letter(one, one.letter, versions[one.letter])
        events.append(dead_letter_event(created, now, context))
    return events


def _keep(one: _Settled, now: datetime, versions: Mapping[UUID, str]) -> list[Record]:
    """The end of work as history keeps it."""
    records = [history_records.settled(_end(one, now))]
    if one.letter is not None:
        created = _letter(one, one.letter, versions[one.letter])
        records.append(
            history_records.letter(created, input=one.row["input"], failure=one.failure, now=now)
        )
    return records


def _keep_waiting(one: _Again, now: datetime) -> Record:
    return history_records.waiting(
        one.row, one.retry, begun=one.begun, traceparent=one.context, now=now
    )


def _end(one: _Settled, now: datetime) -> WorkSettled:
    row = one.row
    return WorkSettled(
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        outcome=one.outcome,
        reason=one.reason,
        run=row["run_id"],
        runs=row["runs"],
        attempts=one.attempts,
        dead_letter=one.letter,
        activations=fitting(_activations(row)),
        settled_at=now,
    )


def _activations(row: Any) -> tuple[Activation, ...]:
    """What all runs of the round have woken."""
    by_run = msgspec.convert(row["activations"] or [], list[list[Activation]])
    return unite(activation for run in by_run for activation in run)


def _letter(one: _Settled, letter: UUID, code_version: str) -> DeadLetterCreated:
    row = one.row
    return DeadLetterCreated(
        dead_letter=letter,
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        job=row["job"],
        reason=one.reason,
        attempts=one.attempts,
        fingerprint=one.fingerprint,
        code_version=code_version,
    )
