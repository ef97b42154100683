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
from headway_contract.settled import DeadLetterCreated, Outcome
from headway_contract.work import WorkTerms
from headway_decisions.retries import retries
from headway_decisions.retries.dead_letters import fingerprint
from headway_decisions.retries.retries import DeadLetter, Retry
from headway_decisions.runs import reaping
from headway_decisions.runs.folding import Run
from headway_decisions.runs.transitions import next_work_state
from headway_history import Record
from headway_postgres_kit import Connection, StatementBatch, note
from headway_relay import OutboxMessage, stamped
from headway_tracing import CONTEXTS_APART, first_context, span, traceparent
from msgspec import Struct, structs

from headway_dispatcher import events
from headway_dispatcher.letters import letters
from headway_dispatcher.metrics import DEAD_LETTERS, RETRIES, SETTLED, Sample
from headway_dispatcher.runs.failure_log import RunFailure
from headway_dispatcher.store import HISTORY, OUTBOX, works

# Reasons of outcomes.
PRUNED = "manifest was pruned"
EXPIRED = "it did not start before its deadline (start_by)"


class Changes(Struct):
    """The history records of a transaction, and its follow-ups."""

    records: list[Record] = []
    # Messages about settled work, which the outbox has too.
    messages: list[OutboxMessage] = []
    # Manifests in whose freed slot letters wait.
    freed: set[UUID] = set()
    # Whether work of a pruned manifest ended.
    pruned: bool = False
    # Completed runs in packed records; such a record also says that the work is settled.
    packed_runs: dict[UUID, dict[str, Any]] = {}

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

    def note_completed(self, row: Any, now: datetime) -> bool:
        """Record the end of work with its completed run; false if that has a record of its own."""
        packed = self.packed_runs.get(row["run_id"])
        if packed is not None:
            packed |= {"round": row["round"], "attempts": row["attempts"], "settled_at": now}
        return packed is not None

    def free(self, rows: Iterable[Any]) -> None:
        """Note the manifests of settled work that were pruned, or whose slot letters wait for."""
        for row in rows:
            if row["pruned"]:
                self.pruned = True
            elif row["letters_wait"]:
                self.freed.add(row["manifest_id"])


class _Ended(Struct, frozen=True, kw_only=True):
    """Work that is settled; with a `failure` it has a dead letter."""

    row: Any
    outcome: Outcome
    attempts: int
    reason: str = ""
    failure: Failure | None = None
    letter: DeadLetterCreated | None = None
    # The trace of the decision, if it is recorded.
    context: str | None = None


class _Waits(Struct, frozen=True, kw_only=True):
    """Work that is retried."""

    row: Any
    retry: Retry
    # Whether the body of the failed run had begun.
    begun: bool
    # The trace of the next attempt; `None` keeps the current one.
    context: str | None


async def settle(
    connection: Connection,
    ended: dict[UUID, Run],
    *,
    now: datetime,
    changes: Changes,
    writes: StatementBatch,
    contexts: Mapping[Any, str] = MappingProxyType({}),
) -> None:
    """Decide about the work of runs that failed or were cancelled; `ended` is by work id.

    `contexts` are the traces in which the ends were projected, by run. It adds to `changes` and
    `writes`. It sends `writes` before it creates dead letters, because those copy their runs.
    """
    rows = await connection.fetch(works["lock"], sorted(ended))
    settled: list[_Ended] = []
    retried: list[_Waits] = []
    for row in rows:
        run, main = ended[row["id"]], first_context(row["traceparent"])
        with span("settle", parent=contexts.get(run.id, main), work=str(row["id"])) as current:
            verdict = _decide(row, run, now)
            if run.failure is not None:
                note(_failure(row, run, run.failure, verdict, now))
            context = traceparent()
            if isinstance(verdict, Retry):
                current.set_attribute("headway.outcome", "retry")
                linked = CONTEXTS_APART.join((main, context)) if main and context else None
                begun = run.started_at is not None
                retried.append(_Waits(row=row, retry=verdict, begun=begun, context=linked))
            else:
                current.set_attribute("headway.outcome", verdict.outcome)
                settled.append(structs.replace(verdict, context=context))
    await _write_retries(connection, retried, now, changes)
    if any(work.letter is not None for work in settled):
        await writes.send(connection)
        settled = await _write_letters(connection, settled, now)
    _write_settled(writes, settled, now, changes)
    changes.free(rows)


async def cancel(
    connection: Connection, waiting: Sequence[tuple[Any, str]], *, now: datetime, changes: Changes
) -> None:
    """Settle waiting work as cancelled; `waiting` has locked rows, each with a reason."""
    settled = [_traced(_end(row, "cancelled", reason)) for row, reason in waiting]
    writes = StatementBatch()
    _write_settled(writes, settled, now, changes)
    await writes.send(connection)
    changes.free(row for row, _ in waiting)


async def expire(connection: Connection, late: Sequence[UUID], *, now: datetime) -> None:
    """Settle waiting work that has not begun in time."""
    rows = await connection.fetch(works["lock"], late)
    settled = [_traced(_end(row, "expired", EXPIRED)) for row in rows]
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
        reason = PRUNED if row["cancel_reason"] is None else row["cancel_reason"]
        return _end(row, "cancelled", reason, attempts=verdict.attempts)
    if isinstance(verdict, DeadLetter):
        ended = _end(row, "dead_lettered", verdict.reason, attempts=verdict.attempts)
        letter = _letter(row, verdict, run.failure)
        return structs.replace(ended, failure=run.failure, letter=letter)
    next_work_state(row["state"], "retry")
    return verdict


def _failure(
    row: Any, run: Run, failure: Failure, verdict: _Ended | Retry, now: datetime
) -> RunFailure:
    """Describe a failed run and what follows, for the log."""
    at, letter = (verdict.at, None) if isinstance(verdict, Retry) else (None, verdict.letter)
    return RunFailure(
        run=run.id,
        work=row["id"],
        manifest=row["manifest"],
        job=row["job"],
        worker=run.worker,
        failure=failure,
        attempt=verdict.attempts,
        attempts=msgspec.convert(row["terms"], WorkTerms).retry.attempts,
        counted=verdict.attempts > row["attempts"],
        next_seconds=None if at is None else (at - now).total_seconds(),
        reason=verdict.reason,
        dead_letter=None if letter is None else letter.dead_letter,
    )


def _after_success_or_cancel(row: Any, run: Run) -> _Ended:
    """Return the end of work whose run did not fail; a withdrawn order counts no attempt."""
    requested = row["cancel_requested_at"] is not None
    if reaping.expired_before_start(row["start_by"], run, cancel_requested=requested):
        return _end(row, "expired", EXPIRED)
    completed = run.state == "completed"
    counted = completed or run.started_at is not None
    return _end(
        row,
        "completed" if completed else "cancelled",
        run.cancel_reason or "",
        attempts=row["attempts"] + counted,
    )


def _end(
    row: Any,
    outcome: Literal["completed", "cancelled", "expired", "dead_lettered"],
    reason: str,
    *,
    attempts: int | None = None,
) -> _Ended:
    """Return the end of work, if its state allows it."""
    next_work_state(row["state"], outcome)
    counted = row["attempts"] if attempts is None else attempts
    return _Ended(row=row, outcome=outcome, attempts=counted, reason=reason)


def _letter(row: Any, verdict: DeadLetter, failure: Failure) -> DeadLetterCreated:
    return DeadLetterCreated(
        dead_letter=new_id(),
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        job=row["job"],
        reason=verdict.reason,
        attempts=verdict.attempts,
        fingerprint=fingerprint(row["job"], failure),
    )


async def _write_retries(
    connection: Connection, retried: Sequence[_Waits], now: datetime, changes: Changes
) -> None:
    if not retried:
        return
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
    for work in retried:
        row, retry = work.row, work.retry
        note(Sample(RETRIES, (row["group_name"], row["job"], retry.reason)))
        changes.records.append(
            events.waiting_record(row, retry, begun=work.begun, traceparent=work.context, now=now)
        )


async def _write_letters(
    connection: Connection, settled: Sequence[_Ended], now: datetime
) -> list[_Ended]:
    """Create dead letters; returns all settled work, letters with the failed code version."""
    contents = [
        structs.asdict(work.letter)
        | {"input": work.row["input"], "failure": work.failure, "run_id": work.row["run_id"]}
        for work in settled
        if work.letter is not None
    ]
    rows = await connection.fetch(works["add_dead_letters"], contents, now)
    versions = {row["id"]: row["code_version"] for row in rows}
    return [
        work
        if (letter := work.letter) is None
        else structs.replace(
            work, letter=structs.replace(letter, code_version=versions[letter.dead_letter])
        )
        for work in settled
    ]


def _write_settled(
    writes: StatementBatch, settled: Sequence[_Ended], now: datetime, changes: Changes
) -> None:
    published: list[Event] = []
    for work in settled:
        row, letter = work.row, work.letter
        context = work.context or first_context(row["traceparent"])
        end = events.work_settled(
            row,
            outcome=work.outcome,
            reason=work.reason,
            attempts=work.attempts,
            dead_letter=None if letter is None else letter.dead_letter,
            settled_at=now,
        )
        published.append(events.settled_event(end, context))
        changes.records.append(events.settled_record(end))
        if letter is not None:
            id_ = letter.dead_letter
            published.append(
                events.own_event(letter, id=id_, subject=id_, time=now, traceparent=context)
            )
            content = {"input": row["input"], "failure": work.failure}
            changes.records.append(events.letter_record(letter, content, now))
            note(Sample(DEAD_LETTERS, (row["group_name"], row["job"], letter.reason)))
        note(Sample(SETTLED, (row["group_name"], row["job"], work.outcome)))
    if settled:
        writes.add(
            works["settle"],
            [work.row["id"] for work in settled],
            [work.outcome for work in settled],
            [work.attempts for work in settled],
            now,
        )
        publish(writes, published, changes)


def publish(writes: StatementBatch, published: Sequence[Event], changes: Changes) -> None:
    """Add messages about settled work to the outbox and to those that the relay is handed."""
    messages = stamped(events.settled_messages(published))
    OUTBOX.add_to(writes, messages)
    changes.messages += messages
