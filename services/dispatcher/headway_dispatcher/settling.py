"""What follows the end of a run: settle its work, try again, or ask for a person.

Work that somebody wants to end early, or whose manifest is gone, is never tried again.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_clock import jitter, new_id
from headway_contract.lifecycle import Activation, Failure
from headway_contract.settled import DeadLetterCreated, Outcome, WorkSettled
from headway_contract.work import RetryPolicy
from headway_decisions import retries
from headway_decisions.folding import Run, unite
from headway_decisions.retries import DeadLetter, Retry
from headway_decisions.transitions import WorkMove, next_work_state
from headway_history import Record
from headway_postgres_kit import Connection, json_array
from headway_relay import OutboxMessage
from msgspec import Struct

from headway_dispatcher import recording
from headway_dispatcher.store import OUTBOX, works
from headway_dispatcher.telling import dead_letter_message, fitting, settled_message

# Why work of a manifest that is gone does not run (again).
PRUNED = "manifest was pruned"


class _Settled(Struct, frozen=True, kw_only=True):
    row: Any
    outcome: Outcome
    attempts: int
    letter: UUID | None = None
    reason: str = ""
    failure: Failure | None = None


async def settle(
    connection: Connection, ended: dict[UUID, Run], *, now: datetime, records: list[Record]
) -> bool:
    """Decide about the work of runs that have just ended; `ended` is by work id.

    Tells whether any of it belongs to a pruned manifest, which may now be deleted. What history
    is to keep is added to `records`.
    """
    if not ended:
        return False
    rows = await connection.fetch(works["lock"], sorted(ended))
    settled: list[_Settled] = []
    again: list[tuple[Any, Retry]] = []
    for row in rows:
        verdict = _decide(row, ended[row["id"]], now)
        if isinstance(verdict, Retry):
            again.append((row, verdict))
        else:
            settled.append(verdict)
    await _write_retries(connection, again)
    await _write_settled(connection, settled, now)
    await OUTBOX.add(connection, [message for one in settled for message in _tell(one, now)])
    records += [_keep_waiting(row, verdict, now) for row, verdict in again]
    records += [record for one in settled for record in _keep(one, now)]
    return any(row["pruned"] for row in rows)


async def cancel(
    connection: Connection,
    waiting: Sequence[tuple[Any, str]],
    *,
    now: datetime,
    records: list[Record],
) -> None:
    """Settle work that waits as cancelled: rows that are locked, and the reason of each."""
    settled = []
    for row, reason in waiting:
        next_work_state(row["state"], "cancelled")
        settled.append(
            _Settled(row=row, outcome="cancelled", attempts=row["attempts"], reason=reason)
        )
    await _write_settled(connection, settled, now)
    await OUTBOX.add(connection, [message for one in settled for message in _tell(one, now)])
    records += [record for one in settled for record in _keep(one, now)]


def _decide(row: Any, run: Run, now: datetime) -> _Settled | Retry:
    """One verdict for one piece of work; the table of transitions has the last word."""
    if run.failure is None:
        return _as_it_ended(row, run)
    verdict = retries.after_failure(
        msgspec.convert(row["retry"], RetryPolicy),
        run.failure,
        attempts=row["attempts"],
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


async def _write_retries(connection: Connection, again: Sequence[tuple[Any, Retry]]) -> None:
    if again:
        await connection.execute(
            works["retry"],
            [row["id"] for row, _ in again],
            [verdict.at for _, verdict in again],
            [verdict.reason for _, verdict in again],
            [verdict.attempts for _, verdict in again],
        )


async def _write_settled(
    connection: Connection, settled: Sequence[_Settled], now: datetime
) -> None:
    if settled:
        await connection.execute(
            works["settle"],
            [one.row["id"] for one in settled],
            [one.outcome for one in settled],
            [one.attempts for one in settled],
            now,
        )
    letters = [one for one in settled if one.letter is not None]
    if letters:
        await connection.execute(
            works["add_dead_letters"],
            [one.letter for one in letters],
            [one.row["id"] for one in letters],
            [one.row["round"] for one in letters],
            [one.row["manifest_id"] for one in letters],
            [one.row["group_name"] for one in letters],
            [one.row["job"] for one in letters],
            json_array(one.row["input"] for one in letters),
            [one.reason for one in letters],
            json_array(one.failure for one in letters),
            [one.attempts for one in letters],
            now,
        )


def _tell(one: _Settled, now: datetime) -> list[OutboxMessage]:
    row = one.row
    messages = [settled_message(_end(one, now), row["traceparent"])]
    if one.letter is not None:
        messages.append(dead_letter_message(_letter(one, one.letter), now))
    return messages


def _keep(one: _Settled, now: datetime) -> list[Record]:
    """The end of work as history keeps it."""
    records = [recording.settled(_end(one, now))]
    if one.letter is not None:
        created = _letter(one, one.letter)
        records.append(
            recording.letter(created, input=one.row["input"], failure=one.failure, now=now)
        )
    return records


def _keep_waiting(row: Any, verdict: Retry, now: datetime) -> Record:
    return recording.waiting(
        row, attempts=verdict.attempts, not_before=verdict.at, reason=verdict.reason, now=now
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


def _letter(one: _Settled, letter: UUID) -> DeadLetterCreated:
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
    )
