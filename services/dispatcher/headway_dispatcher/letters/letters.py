"""Dead letters: retry or acknowledge work that failed for good.

A retry begins the next round of the work: it is queued again in its old slot. While other work of
its manifest is in that slot, the request waits on the letter. An acknowledgement closes the
letter. The scheduler receives both and unblocks the manifest. The row lock makes each happen once.

Work is locked before its letter and in a fixed order, as everywhere. Callers hold the tombstone
lock, so that work of a pruned manifest is never queued again.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.dead_letters import LetterResult
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, InputChange
from headway_decisions.retries import dead_letters as rules
from headway_decisions.runs.transitions import next_work_state
from headway_postgres_kit import Connection, Database, driver, json_array, savepoint
from headway_tracing import CONTEXTS_APART, first_context, span, traceparent
from headway_tracing.log import get_logger
from msgspec import UNSET, Struct, UnsetType, structs

from headway_dispatcher import store
from headway_dispatcher.events import deleted_record, operator_record, outbox_message, own_event
from headway_dispatcher.letters.messages import results
from headway_dispatcher.store import (
    HISTORY,
    OUTBOX,
    TOMBSTONE_LOCK,
    Times,
    canary_queries,
    letter_queries,
    prune_queries,
)
from headway_dispatcher.wakeups import Wakeups

log = get_logger(__name__)

BATCH = 500
_PURGE_BATCH = 1000
_RETRY_REQUESTED = "headway.dead_letter.retry_asked.v1"

# Columns of requeued work that history keeps beside the event.
_ROUND_COLUMNS = (
    *("input", "queued_at", "not_before", "rank", "concurrency_key", "runs", "traceparent"),
)


class RetryOrder(Struct, frozen=True, kw_only=True):
    """A person's order to retry letters, perhaps with an edited input.

    An edited input may change the concurrency key; unset keeps the key.
    """

    actor: str
    input: Any = UNSET
    key: str | UnsetType | None = UNSET

    def edit_of(self, row: Any) -> list[InputChange] | None:
        """Return the changes to the input that failed; `None` if it was not edited."""
        return None if self.input is UNSET else rules.input_changes(row["input"], self.input)


class _Resolved(Struct, frozen=True, kw_only=True):
    """A resolved letter; after a retry with the edit of its input and the new row of its work."""

    event: DeadLetterRetried | DeadLetterAcknowledged
    edit: list[InputChange] | None = None
    requeued: Any = None


async def retry(
    connection: Connection, ids: Sequence[UUID], order: RetryOrder, *, times: Times
) -> list[LetterResult]:
    """Run the work of letters again; returns a result for each letter."""
    while True:
        locked, rows = await _lock(connection, ids)
        verdicts = rules.judge_retries(locked)
        begun = [rows[letter.id] for letter, each in verdicts if isinstance(each, rules.RetryNow)]
        queued = await _begin_rounds(connection, begun, order, times.schedule)
        if queued is not None:
            break
        # Other work took one of the slots at this moment; the next look sees it.
    waiting = [rows[letter.id] for letter, each in verdicts if isinstance(each, rules.RetryWaits)]
    await _store_orders(connection, waiting, order, times)
    resolved = [
        _retried(row, order.actor, order.edit_of(row), queued[row["work_id"]], times)
        for row in begun
    ]
    await _resolve(connection, resolved, times)
    edited = [letter for letter, row in rows.items() if order.edit_of(row)]
    return results(ids, verdicts, rows, edited=edited)


async def acknowledge(
    connection: Connection, ids: Sequence[UUID], *, note: str, actor: str, times: Times
) -> list[LetterResult]:
    """Close letters without a retry; returns a result for each letter."""
    locked, rows = await _lock(connection, ids)
    verdicts = rules.judge_acknowledgements(locked)
    closed = [rows[letter.id] for letter, each in verdicts if isinstance(each, rules.Acknowledged)]
    resolved = [
        _Resolved(
            event=DeadLetterAcknowledged(
                **_event_fields(row, actor, times), round=row["round"], note=note
            )
        )
        for row in closed
    ]
    await _resolve(connection, resolved, times)
    return results(ids, verdicts, rows)


async def resume(connection: Connection, manifests: Sequence[UUID] | None, *, times: Times) -> int:
    """Retry letters whose slot has come free; returns their number."""
    free = await connection.fetch(letter_queries["lock_waiting"], manifests, BATCH)
    if not free:
        return 0
    locked, rows = await _lock(connection, [row["id"] for row in free])
    # The request was judged when it was made; only the order within a slot is left to decide.
    verdicts = rules.judge_retries(
        structs.replace(letter, retry_requested=False) for letter in locked
    )
    begun = [rows[letter.id] for letter, each in verdicts if isinstance(each, rules.RetryNow)]
    resumed = 0
    for row in begun:
        edited = row["edit"] is not None
        order = RetryOrder(
            actor=row["retry_requested_by"],
            input=row["retry_input"] if edited else UNSET,
            key=UNSET if row["retry_key"] is None else row["retry_key"][0],
        )
        queued = await _begin_rounds(connection, [row], order, times.schedule)
        if queued is not None:
            edit = msgspec.convert(row["edit"], list[InputChange]) if edited else None
            resolved = _retried(row, order.actor, edit, queued[row["work_id"]], times)
            await _resolve(connection, [resolved], times)
            resumed += 1
    return resumed


async def resume_at_once(
    connection: Connection, manifests: Collection[UUID], *, now: datetime
) -> None:
    """Retry letters of manifests whose work just left a slot.

    It never waits for a lock; `retry_waiting` retries the rest.
    """
    if manifests and await connection.fetchval(prune_queries["try_share_lock"], TOMBSTONE_LOCK):
        times = Times(real=await store.read_now(connection), schedule=now)
        await resume(connection, list(manifests), times=times)


async def retry_waiting(database: Database, wake: Wakeups) -> float | None:
    """Retry a batch of letters whose slot has come free.

    The transaction that settles the work in the slot usually does it; this pass catches the rest.
    """
    async with database.transaction() as connection:
        await store.share_tombstone_lock(connection)
        times = await store.read_times(connection, database)
        resumed = await resume(connection, None, times=times)
    if resumed:
        wake.gate.call()
        wake.relay.call()
    return 0.0 if resumed == BATCH else None


async def purge_letters(database: Database, *, days: float) -> float | None:
    """Delete a batch of dead letters that were resolved long ago, and ended canaries."""
    async with database.transaction() as connection:
        oldest = await database.clock.now(connection) - timedelta(days=days)
        status = await connection.execute(letter_queries["purge"], oldest, _PURGE_BATCH)
        await connection.execute(canary_queries["purge"], oldest)
        purged = int(status.rpartition(" ")[2])
        if purged:
            await HISTORY.append(connection, [deleted_record("resolved_before", oldest)])
    if purged:
        log.info("resolved dead letters deleted", dead_letters=purged)
    return 0.0 if purged == _PURGE_BATCH else None


async def _lock(
    connection: Connection, ids: Sequence[UUID]
) -> tuple[list[rules.Letter], dict[UUID, Any]]:
    """Lock work, then letters, and read them, with the rows of letters that are not pruned.

    Letters of pruned manifests are not locked: the prune locks letters first.
    """
    known = await connection.fetch(letter_queries["works_of"], sorted(set(ids)))
    pruned = [row for row in known if row["pruned"]]
    kept = [row for row in known if not row["pruned"]]
    await connection.execute(letter_queries["lock_works"], sorted({row["work_id"] for row in kept}))
    rows = await connection.fetch(letter_queries["lock"], [row["id"] for row in kept])
    letters = [
        rules.Letter(
            id=row["id"],
            work=row["work_id"],
            round=row["round"],
            state=row["state"],
            retry_requested=row["retry_requested_at"] is not None,
            slot=None if row["manifest_id"] is None else (row["manifest_id"], row["slot"]),
            taken_by=row["taken_by"],
            job_retired=row["job_retired"],
        )
        for row in rows
    ]
    letters += [
        rules.Letter(id=row["id"], work=row["work_id"], round=row["round"], state="", pruned=True)
        for row in pruned
    ]
    return letters, {row["id"]: row for row in rows}


async def _begin_rounds(
    connection: Connection, begun: Sequence[Any], order: RetryOrder, now: datetime
) -> dict[UUID, Any] | None:
    """Queue work again; returns the new rows by work.

    `None`, with nothing changed, if other work took a slot at this moment.
    """
    for row in begun:
        next_work_state(row["work_state"], "retried")
    edited = order.input is not UNSET
    try:
        async with savepoint(connection):
            rows = await connection.fetch(
                letter_queries["requeue"],
                [row["work_id"] for row in begun],
                [row["round"] + 1 for row in begun],
                edited,
                order.input if edited else None,
                now,
                [_retry_context(row) for row in begun],
                order.key is not UNSET,
                None if order.key is UNSET else order.key,
            )
    except driver.UniqueViolationError:
        return None
    return {row["id"]: row for row in rows}


def _retry_context(row: Any) -> str | None:
    """Return the trace of the work, with a link to the span of the retry for its next run."""
    main = first_context(row["traceparent"])
    with span("retry", parent=main, work=str(row["work_id"]), dead_letter=str(row["id"])):
        context = traceparent()
    return CONTEXTS_APART.join((main, context)) if main and context else None


async def _store_orders(
    connection: Connection, waiting: Sequence[Any], order: RetryOrder, times: Times
) -> None:
    """Store the order on letters that must wait for their slot."""
    records = []
    for row in waiting:
        letter, edit = row["id"], order.edit_of(row)
        await connection.execute(
            letter_queries["store_order"],
            letter,
            order.actor,
            None if edit is None else order.input,
            edit,
            times.schedule,
            None if order.key is UNSET else [order.key],
        )
        data = {"dead_letter": letter, "work": row["work_id"], "waits_for": row["taken_by"]}
        records.append(operator_record(_RETRY_REQUESTED, letter, order.actor, times.schedule, data))
    await HISTORY.append(connection, records, now=times.real)


async def _resolve(connection: Connection, resolved: Sequence[_Resolved], times: Times) -> None:
    """Resolve letters in the same way; history also keeps the rows of requeued work."""
    if not resolved:
        return
    first = resolved[0].event
    note = first.note if isinstance(first, DeadLetterAcknowledged) else None
    await connection.execute(
        letter_queries["resolve"],
        [each.event.dead_letter for each in resolved],
        "retried" if note is None else "acknowledged",
        first.actor,
        note or None,
        json_array(each.edit for each in resolved),
        times.schedule,
    )
    messages, records = [], []
    for each in resolved:
        event, row = each.event, each.requeued
        letter, at = event.dead_letter, event.resolved_at
        columns = {} if row is None else {name: row[name] for name in _ROUND_COLUMNS}
        # The last context is the span of the retry, if traces are recorded.
        context = (columns.get("traceparent") or "").split(CONTEXTS_APART)[-1] or None
        published = own_event(
            event, id=f"resolved.{letter}", subject=letter, time=at, traceparent=context
        )
        messages.append(outbox_message(published))
        data = msgspec.to_builtins(event) | columns
        record = operator_record(event.type, letter, event.actor, at, data)
        records.append(structs.replace(record, event_id=published.id))
    await OUTBOX.add(connection, messages)
    await HISTORY.append(connection, records, now=times.real)


def _retried(
    row: Any, actor: str, edit: list[InputChange] | None, requeued: Any, times: Times
) -> _Resolved:
    event = DeadLetterRetried(
        **_event_fields(row, actor, times),
        round=row["round"] + 1,
        slot=row["slot"],
        edit=edit or [],
    )
    return _Resolved(event=event, edit=edit, requeued=requeued)


def _event_fields(row: Any, actor: str, times: Times) -> dict[str, Any]:
    return {
        "dead_letter": row["id"],
        "work": row["work_id"],
        "manifest_id": row["manifest_id"],
        "manifest": row["manifest"],
        "group": row["group_name"],
        "actor": actor,
        "resolved_at": times.schedule,
    }
