"""Dead letters: retry or acknowledge work that failed for good.

A retry begins the next round of the work: it is queued again in its old slot. While other work of
its manifest is in that slot, the request waits on the letter. An acknowledgement closes the
letter. The scheduler receives both and unblocks the manifest. The row lock makes each happen once.

Work is locked before its letter and in a fixed order, as everywhere. Callers hold the tombstone
lock, so that work of a pruned manifest is never queued again.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from headway_clock import new_id
from headway_contract.dead_letters import LetterResult
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, InputChange
from headway_decisions.retries import dead_letters as rules
from headway_decisions.retries.dead_letters import (
    Acknowledged,
    Letter,
    RetryNow,
    RetryWaits,
    input_changes,
)
from headway_decisions.runs.transitions import next_work_state
from headway_history import Record
from headway_postgres_kit import Clock, Connection, Database, json_array, savepoint
from headway_tracing import CONTEXTS_APART, first_context, span, traceparent
from headway_tracing.log import get_logger
from msgspec import UNSET, Struct, UnsetType, structs

from headway_dispatcher import store
from headway_dispatcher.history import history_records
from headway_dispatcher.letters.messages import results
from headway_dispatcher.outbound_events import resolved_message
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
        return None if self.input is UNSET else input_changes(row["input"], self.input)


class _Found(Struct, frozen=True, kw_only=True):
    letters: list[Letter]
    rows: dict[UUID, Any]


async def retry(
    connection: Connection, ids: Sequence[UUID], order: RetryOrder, *, times: Times
) -> list[LetterResult]:
    """Run the work of letters again; returns a result for each letter."""
    while True:
        found = await _lock(connection, ids)
        verdicts = rules.judge_retries(found.letters)
        begun = [found.rows[letter.id] for letter, each in verdicts if isinstance(each, RetryNow)]
        queued = await _begin_rounds(connection, begun, order, times.schedule)
        if queued is not None:
            break
        # Other work took one of the slots at this moment; the next look sees it.
    waiting = [found.rows[letter.id] for letter, each in verdicts if isinstance(each, RetryWaits)]
    await _store_orders(connection, waiting, order, times)
    edits = [order.edit_of(row) for row in begun]
    await _resolve(connection, list(zip(begun, edits, strict=True)), order.actor, queued, times)
    return results(ids, verdicts, found.rows)


async def acknowledge(
    connection: Connection, ids: Sequence[UUID], *, note: str, actor: str, times: Times
) -> list[LetterResult]:
    """Close letters without a retry; returns a result for each letter."""
    found = await _lock(connection, ids)
    verdicts = rules.judge_acknowledgements(found.letters)
    closed = [found.rows[letter.id] for letter, each in verdicts if isinstance(each, Acknowledged)]
    await connection.execute(
        letter_queries["resolve"],
        [row["id"] for row in closed],
        "acknowledged",
        [actor for _ in closed],
        note or None,
        [None for _ in closed],
        times.schedule,
    )
    await _publish(
        connection,
        [
            DeadLetterAcknowledged(
                **_event_fields(row, actor, times), round=row["round"], note=note
            )
            for row in closed
        ],
        times,
    )
    return results(ids, verdicts, found.rows)


async def resume(connection: Connection, manifests: Sequence[UUID] | None, *, times: Times) -> int:
    """Retry letters whose slot has come free; returns their number."""
    free = await connection.fetch(letter_queries["lock_waiting"], manifests, BATCH)
    if not free:
        return 0
    found = await _lock(connection, [row["id"] for row in free])
    # The request was judged when it was made; only the order within a slot is left to decide.
    letters = [structs.replace(letter, retry_requested=False) for letter in found.letters]
    verdicts = rules.judge_retries(letters)
    begun = [found.rows[letter.id] for letter, each in verdicts if isinstance(each, RetryNow)]
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
            await _resolve(connection, [(row, edit)], order.actor, queued, times)
            resumed += 1
    return resumed


async def resume_at_once(
    connection: Connection, manifests: Collection[UUID], *, now: datetime
) -> None:
    """Retry letters of manifests whose work just left a slot.

    It never waits for a lock; `WaitingRetries` retries the rest.
    """
    if manifests and await connection.fetchval(prune_queries["try_share_lock"], TOMBSTONE_LOCK):
        times = Times(real=await store.read_now(connection), schedule=now)
        await resume(connection, list(manifests), times=times)


class WaitingRetries:
    """Retries letters whose slot has come free, for one dispatcher process.

    The transaction that settles the work in the slot usually does it; this pass catches the rest.
    """

    def __init__(self, database: Database, *, clock: Clock, wake: Wakeups) -> None:
        self._database = database
        self._clock = clock
        self._wake = wake

    async def run_once(self) -> float | None:
        """Retry a batch of letters."""
        async with self._database.transaction() as connection:
            await store.share_tombstone_lock(connection)
            times = await store.read_times(connection, self._clock)
            resumed = await resume(connection, None, times=times)
        if resumed:
            self._wake.gate.call()
            self._wake.relay.call()
        return 0.0 if resumed == BATCH else None


class LetterRetention:
    """Deletes dead letters that were resolved long ago, and ended canaries."""

    def __init__(self, database: Database, *, days: float, clock: Clock) -> None:
        self._database = database
        self._kept = timedelta(days=days)
        self._clock = clock

    async def run_once(self) -> float | None:
        """Delete one batch."""
        async with self._database.transaction() as connection:
            oldest = await self._clock.now(connection) - self._kept
            status = await connection.execute(letter_queries["purge"], oldest, _PURGE_BATCH)
            await connection.execute(canary_queries["purge"], oldest)
            purged = int(status.rpartition(" ")[2])
            if purged:
                await HISTORY.append(connection, [history_records.letters_deleted(oldest)])
        if purged:
            log.info("resolved dead letters deleted", dead_letters=purged)
        return 0.0 if purged == _PURGE_BATCH else None


async def _lock(connection: Connection, ids: Sequence[UUID]) -> _Found:
    """Lock work, then letters, and read them.

    Letters of pruned manifests are not locked: the prune locks letters first.
    """
    known = await connection.fetch(letter_queries["works_of"], sorted(set(ids)))
    pruned = [row for row in known if row["pruned"]]
    kept = [row for row in known if not row["pruned"]]
    await connection.execute(letter_queries["lock_works"], sorted({row["work_id"] for row in kept}))
    rows = await connection.fetch(letter_queries["lock"], [row["id"] for row in kept])
    letters = [_letter(row) for row in rows]
    letters += [
        Letter(id=row["id"], work=row["work_id"], round=row["round"], state="", pruned=True)
        for row in pruned
    ]
    return _Found(letters=letters, rows={row["id"]: row for row in rows})


def _letter(row: Any) -> Letter:
    manifest = row["manifest_id"]
    return Letter(
        id=row["id"],
        work=row["work_id"],
        round=row["round"],
        state=row["state"],
        retry_requested=row["retry_requested_at"] is not None,
        slot=None if manifest is None else (manifest, row["slot"]),
        taken_by=row["taken_by"],
        job_retired=row["job_retired"],
    )


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
                [edited for _ in begun],
                json_array(order.input if edited else None for _ in begun),
                now,
                [_retry_context(row) for row in begun],
                order.key is not UNSET,
                None if order.key is UNSET else order.key,
            )
    except asyncpg.UniqueViolationError:
        return None
    return {row["id"]: row for row in rows}


def _retry_context(row: Any) -> str | None:
    """Return the trace of the work, with a link to the span of the retry for its next run."""
    main = first_context(row["traceparent"])
    with span("retry", parent=main, work=str(row["work_id"]), dead_letter=str(row["id"])):
        context = traceparent()
    return CONTEXTS_APART.join((main, context)) if main and context else None


async def _resolve(
    connection: Connection,
    begun: Sequence[tuple[Any, list[InputChange] | None]],
    actor: str,
    queued: dict[UUID, Any],
    times: Times,
) -> None:
    """Mark letters as retried; `queued` has the new rows of their work."""
    if not begun:
        return
    await connection.execute(
        letter_queries["resolve"],
        [row["id"] for row, _ in begun],
        "retried",
        [actor for _ in begun],
        None,
        json_array(edit for _, edit in begun),
        times.schedule,
    )
    events = [
        DeadLetterRetried(
            **_event_fields(row, actor, times),
            round=row["round"] + 1,
            slot=row["slot"],
            edit=edit or [],
        )
        for row, edit in begun
    ]
    await _publish(connection, events, times, queued)


async def _store_orders(
    connection: Connection, waiting: Sequence[Any], order: RetryOrder, times: Times
) -> None:
    """Store the order on letters that must wait for their slot."""
    for row in waiting:
        edit = order.edit_of(row)
        await connection.execute(
            letter_queries["store_order"],
            row["id"],
            order.actor,
            None if edit is None else order.input,
            edit,
            times.schedule,
            None if order.key is UNSET else [order.key],
        )
    records = [
        Record(
            event_id=str(new_id()),
            type="headway.dead_letter.retry_asked.v1",
            subject=str(row["id"]),
            source=f"operator/{order.actor}",
            occurred_at=times.schedule,
            data={"dead_letter": row["id"], "work": row["work_id"], "waits_for": row["taken_by"]},
        )
        for row in waiting
    ]
    await HISTORY.append(connection, records, now=times.real)


async def _publish(
    connection: Connection,
    events: Sequence[DeadLetterRetried | DeadLetterAcknowledged],
    times: Times,
    queued: Mapping[UUID, Any] = MappingProxyType({}),
) -> None:
    """Add events to outbox and history; history also keeps the requeued row."""
    messages = [resolved_message(event, _context(queued.get(event.work))) for event in events]
    await OUTBOX.add(connection, messages)
    records = [
        Record(
            event_id=message.message_id,
            type=event.type,
            subject=str(event.dead_letter),
            source=f"operator/{event.actor}",
            occurred_at=event.resolved_at,
            data=msgspec.to_builtins(event) | _round_columns(queued.get(event.work)),
        )
        for event, message in zip(events, messages, strict=True)
    ]
    await HISTORY.append(connection, records, now=times.real)


def _context(row: Any) -> str | None:
    """Return the span of the retry, if traces are recorded."""
    stored: str | None = None if row is None else row["traceparent"]
    return stored.split(CONTEXTS_APART)[-1] if stored else None


def _round_columns(row: Any) -> dict[str, Any]:
    return {} if row is None else {name: row[name] for name in _ROUND_COLUMNS}


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
