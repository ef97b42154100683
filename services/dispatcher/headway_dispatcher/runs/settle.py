"""The end of a run: settle its work, retry it, or write a dead letter.

Work whose cancel was requested, or whose manifest was pruned, is never retried.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_clock import jitter, new_id
from headway_contract import Event
from headway_contract.lifecycle import Failure
from headway_contract.settled import DeadLetterCreated, Outcome, WorkSettled
from headway_contract.work import WorkTerms
from headway_decisions.retries import retries
from headway_decisions.retries.dead_letters import fingerprint
from headway_decisions.retries.retries import DeadLetter, Retry
from headway_decisions.runs import reaping
from headway_decisions.runs.folding import Run
from headway_decisions.runs.transitions import WorkMove, next_work_state
from headway_history import Record
from headway_postgres_kit import Connection, StatementBatch, json_array, note
from headway_relay import OutboxMessage, stamped
from headway_tracing import CONTEXTS_APART, first_context, span, traceparent
from msgspec import Struct, structs

from headway_dispatcher.history import history_records
from headway_dispatcher.letters import letters
from headway_dispatcher.metrics import Retried, Settled
from headway_dispatcher.outbound_events import (
    dead_letter_event,
    settled_event,
    settled_messages,
    work_settled,
)
from headway_dispatcher.store import HISTORY, OUTBOX, works

# Reasons of outcomes.
PRUNED = "manifest was pruned"
EXPIRED = "it had not begun by the time that was set for it"


class Changes(Struct):
    """The history records of a transaction, and manifests in whose freed slot letters wait."""

    records: list[Record] = []
    freed: set[UUID] = set()

    async def write(
        self,
        connection: Connection,
        writes: StatementBatch | None = None,
        *,
        now: datetime,
        real: datetime | None = None,
    ) -> None:
        """Append the records, send `writes`, and retry dead letters that waited for freed slots.

        It is the last step of a transaction. A later one would find the manifest's next work in
        the slot.
        """
        writes = writes or StatementBatch()
        HISTORY.append_to(writes, self.records, now=real)
        await writes.send(connection)
        await letters.resume_at_once(connection, self.freed, now=now)

    def free(self, rows: Iterable[Any]) -> None:
        """Add the manifests of settled work whose slot dead letters wait for."""
        self.freed |= {
            row["manifest_id"] for row in rows if row["letters_wait"] and not row["pruned"]
        }


class _Ended(Struct, frozen=True, kw_only=True):
    """Work that is settled."""

    row: Any
    outcome: Outcome
    attempts: int
    letter: UUID | None = None
    reason: str = ""
    failure: Failure | None = None
    # The trace of the decision, if it is recorded.
    context: str | None = None

    @property
    def fingerprint(self) -> str:
        """Equal for repetitions of a failure."""
        return "" if self.failure is None else fingerprint(self.row["job"], self.failure)


class _Waits(Struct, frozen=True, kw_only=True):
    """Work that is retried."""

    row: Any
    retry: Retry
    # Whether the body of the failed run had begun.
    begun: bool
    # The trace of the next attempt; `None` keeps the current one.
    context: str | None


class Settling(Struct, frozen=True, kw_only=True):
    """The messages about settled work, and whether work of a pruned manifest ended."""

    messages: list[OutboxMessage] = []
    last_of_pruned: bool = False


async def settle(
    connection: Connection,
    ended: dict[UUID, Run],
    *,
    now: datetime,
    changes: Changes,
    writes: StatementBatch,
    contexts: Mapping[Any, str] = MappingProxyType({}),
) -> Settling:
    """Decide about the work of runs that ended; `ended` is by work id.

    `contexts` are the traces in which the ends were projected, by run. It adds to `changes` and
    `writes`. It sends `writes` before it creates dead letters, because those copy their runs.
    """
    if not ended:
        return Settling()
    rows = await connection.fetch(works["lock"], sorted(ended))
    settled: list[_Ended] = []
    retried: list[_Waits] = []
    for row in rows:
        run, main = ended[row["id"]], first_context(row["traceparent"])
        with span("settle", parent=contexts.get(run.id, main), work=str(row["id"])) as current:
            verdict = _decide(row, run, now)
            context = traceparent()
            if isinstance(verdict, Retry):
                current.set_attribute("headway.outcome", "retry")
                linked = CONTEXTS_APART.join((main, context)) if main and context else None
                begun = run.started_at is not None
                retried.append(_Waits(row=row, retry=verdict, begun=begun, context=linked))
            else:
                current.set_attribute("headway.outcome", verdict.outcome)
                settled.append(structs.replace(verdict, context=context))
    await _write_retries(connection, retried)
    if any(work.letter is not None for work in settled):
        await writes.send(connection)
    versions = await _write_letters(connection, settled, now)
    changes.records += [
        history_records.waiting(
            work.row, work.retry, begun=work.begun, traceparent=work.context, now=now
        )
        for work in retried
    ]
    messages = _write_settled(writes, settled, now, changes, versions)
    changes.free(rows)
    return Settling(messages=messages, last_of_pruned=any(row["pruned"] for row in rows))


async def cancel(
    connection: Connection,
    waiting: Sequence[tuple[Any, str]],
    *,
    now: datetime,
    changes: Changes,
) -> None:
    """Settle waiting work as cancelled; `waiting` has locked rows, each with a reason."""
    for row, _ in waiting:
        next_work_state(row["state"], "cancelled")
    settled = [
        _traced(_Ended(row=row, outcome="cancelled", attempts=row["attempts"], reason=reason))
        for row, reason in waiting
    ]
    writes = StatementBatch()
    _write_settled(writes, settled, now, changes)
    await writes.send(connection)
    changes.free(row for row, _ in waiting)


async def expire(connection: Connection, late: Sequence[UUID], *, now: datetime) -> None:
    """Settle waiting work that has not begun in time."""
    rows = await connection.fetch(works["lock"], late)
    settled = [_traced(_expired(row)) for row in rows]
    writes, changes = StatementBatch(), Changes()
    _write_settled(writes, settled, now, changes)
    changes.free(rows)
    await changes.write(connection, writes, now=now)


def _traced(work: _Ended) -> _Ended:
    """Add a span to the trace of work that ended without a run."""
    main = first_context(work.row["traceparent"])
    if main is None:
        return work
    with span("settle", parent=main, work=str(work.row["id"]), outcome=work.outcome):
        return structs.replace(work, context=traceparent())


def _decide(row: Any, run: Run, now: datetime) -> _Ended | Retry:
    """Return the verdict about work after one of its runs ended."""
    if run.failure is None:
        return _after_success_or_cancel(row, run)
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
        return _Ended(row=row, outcome="cancelled", attempts=verdict.attempts, reason=reason)
    move: WorkMove = "retry" if isinstance(verdict, Retry) else "dead_lettered"
    next_work_state(row["state"], move)
    if isinstance(verdict, DeadLetter):
        return _Ended(
            row=row,
            outcome="dead_lettered",
            attempts=verdict.attempts,
            letter=new_id(),
            reason=verdict.reason,
            failure=run.failure,
        )
    return verdict


def _after_success_or_cancel(row: Any, run: Run) -> _Ended:
    """Return the end of work whose run did not fail; a withdrawn order counts no attempt."""
    if reaping.expired_before_start(
        row["start_by"], run, cancel_requested=row["cancel_requested_at"] is not None
    ):
        return _expired(row)
    ending: Literal["completed", "cancelled"] = (
        "completed" if run.state == "completed" else "cancelled"
    )
    next_work_state(row["state"], ending)
    begun = ending == "completed" or run.started_at is not None
    return _Ended(
        row=row,
        outcome=ending,
        attempts=row["attempts"] + begun,
        reason=run.cancel_reason or "",
    )


def _expired(row: Any) -> _Ended:
    next_work_state(row["state"], "expired")
    return _Ended(row=row, outcome="expired", attempts=row["attempts"], reason=EXPIRED)


async def _write_retries(connection: Connection, retried: Sequence[_Waits]) -> None:
    if retried:
        await connection.execute(
            works["retry"],
            [work.row["id"] for work in retried],
            [work.retry.at for work in retried],
            [work.retry.reason for work in retried],
            [work.retry.attempts for work in retried],
            [work.context for work in retried],
            [work.retry.exclusive_lease for work in retried],
            [work.begun for work in retried],
        )
        note(
            *(
                Retried(work.row["group_name"], work.row["job"], work.retry.reason)
                for work in retried
            )
        )


def _write_settled(
    writes: StatementBatch,
    settled: Sequence[_Ended],
    now: datetime,
    changes: Changes,
    versions: Mapping[UUID, str] = MappingProxyType({}),
) -> list[OutboxMessage]:
    """Settle work; returns the messages about it. `versions` is by dead letter."""
    events: list[Event] = []
    for work in settled:
        context = work.context or first_context(work.row["traceparent"])
        end = _end(work, now)
        events.append(settled_event(end, context))
        changes.records.append(history_records.settled(end))
        if work.letter is not None:
            created = _letter(work, work.letter, versions[work.letter])
            events.append(dead_letter_event(created, now, context))
            changes.records.append(
                history_records.letter(
                    created, input=work.row["input"], failure=work.failure, now=now
                )
            )
    messages = stamped(settled_messages(events))
    if settled:
        writes.add(
            works["settle"],
            [work.row["id"] for work in settled],
            [work.outcome for work in settled],
            [work.attempts for work in settled],
            now,
        )
        OUTBOX.add_to(writes, messages)
    note(*map(_fact, settled))
    return messages


def _fact(work: _Ended) -> Settled:
    letter = work.reason if work.letter is not None else None
    return Settled(work.row["group_name"], work.row["job"], work.outcome, letter)


async def _write_letters(
    connection: Connection, settled: Sequence[_Ended], now: datetime
) -> dict[UUID, str]:
    """Create dead letters; returns the code version of each."""
    dead = [work for work in settled if work.letter is not None]
    if not dead:
        return {}
    rows = await connection.fetch(
        works["add_dead_letters"],
        [work.letter for work in dead],
        [work.row["id"] for work in dead],
        [work.row["round"] for work in dead],
        [work.row["manifest_id"] for work in dead],
        [work.row["manifest"] for work in dead],
        [work.row["group_name"] for work in dead],
        [work.row["job"] for work in dead],
        json_array(work.row["input"] for work in dead),
        [work.reason for work in dead],
        json_array(work.failure for work in dead),
        [work.attempts for work in dead],
        [work.fingerprint for work in dead],
        [work.row["run_id"] for work in dead],
        now,
    )
    return {row["id"]: row["code_version"] for row in rows}


def _end(work: _Ended, now: datetime) -> WorkSettled:
    return work_settled(
        work.row,
        outcome=work.outcome,
        reason=work.reason,
        attempts=work.attempts,
        dead_letter=work.letter,
        settled_at=now,
    )


def _letter(work: _Ended, letter: UUID, code_version: str) -> DeadLetterCreated:
    row = work.row
    return DeadLetterCreated(
        dead_letter=letter,
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        job=row["job"],
        reason=work.reason,
        attempts=work.attempts,
        fingerprint=work.fingerprint,
        code_version=code_version,
    )
