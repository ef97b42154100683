"""Dead letters: work that needs a person, and what that person does about it.

A retry begins the next round of the work: it is queued again in the slot that it had. While
other work of its manifest is in that slot, the letter keeps the wish and waits for it. An
acknowledgement puts the letter away. Either is told to the scheduler, which lets the manifest
go on, and each is done once, whoever asks how often: the row lock decides.

Work is locked before its letter and in a fixed order, as whoever settles it does; and nobody
buries a manifest meanwhile (`prunes.lock`), so that nothing of one that is gone comes back.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
from headway_clock import new_id
from headway_contract.dispatching import LetterResult
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
from headway_postgres_kit import Connection, json_array, savepoint
from headway_tracing import CONTEXTS_APART, first_context, span, traceparent
from msgspec import UNSET, Struct, UnsetType, structs

from headway_dispatcher import store
from headway_dispatcher.letters.messages import results
from headway_dispatcher.outbound_events import resolved_message
from headway_dispatcher.store import (
    BURY_LOCK,
    HISTORY,
    OUTBOX,
    Times,
    letter_queries,
    prune_queries,
)

BATCH = 500

_OF_THE_ROUND = (
    "input",
    "queued_at",
    "not_before",
    "rank",
    "concurrency_key",
    "runs",
    "traceparent",
)


class Wish(Struct, frozen=True, kw_only=True):
    """Who wants letters retried, and with which input if not with their own.

    With another input work may have another concurrency key, which is left out if it stays.
    """

    actor: str
    input: Any = UNSET
    key: str | UnsetType | None = UNSET

    def edit_of(self, row: Any) -> list[InputChange] | None:
        """How the input differs from the one that failed; none where it was not edited."""
        return None if self.input is UNSET else input_changes(row["input"], self.input)


class _Found(Struct, frozen=True, kw_only=True):
    """Letters as the rules see them, and the rows of those that are locked."""

    letters: list[Letter]
    rows: dict[UUID, Any]


async def retry(
    connection: Connection, ids: Sequence[UUID], wish: Wish, *, times: Times
) -> list[LetterResult]:
    """Run the work of letters again; says of each what became of it. Burying is locked out."""
    while True:
        found = await _lock(connection, ids)
        verdicts = rules.judge_retries(found.letters)
        begun = [found.rows[letter.id] for letter, one in verdicts if isinstance(one, RetryNow)]
        queued = await _begin_rounds(connection, begun, wish, times.schedule)
        if queued is not None:
            break
        # Work came into one of the slots at this very moment; the next look will see it.
    asked = [found.rows[letter.id] for letter, one in verdicts if isinstance(one, RetryWaits)]
    await _ask(connection, asked, wish, times)
    edits = [wish.edit_of(row) for row in begun]
    await _resolve(connection, list(zip(begun, edits, strict=True)), wish.actor, queued, times)
    return results(ids, verdicts, found.rows)


async def acknowledge(
    connection: Connection, ids: Sequence[UUID], *, note: str, actor: str, times: Times
) -> list[LetterResult]:
    """Put letters away; says of each what became of it. Burying is locked out."""
    found = await _lock(connection, ids)
    verdicts = rules.judge_acknowledgements(found.letters)
    put_away = [found.rows[letter.id] for letter, one in verdicts if isinstance(one, Acknowledged)]
    await connection.execute(
        letter_queries["resolve"],
        [row["id"] for row in put_away],
        "acknowledged",
        [actor for _ in put_away],
        note or None,
        [None for _ in put_away],
        times.schedule,
    )
    await _tell(
        connection,
        [
            DeadLetterAcknowledged(**_told(row, actor, times), round=row["round"], note=note)
            for row in put_away
        ],
        times,
    )
    return results(ids, verdicts, found.rows)


async def resume(connection: Connection, manifests: Sequence[UUID] | None, *, times: Times) -> int:
    """Retry letters that waited for a slot which is free now; returns how many."""
    free = await connection.fetch(letter_queries["lock_asked"], manifests, BATCH)
    if not free:
        return 0
    found = await _lock(connection, [row["id"] for row in free])
    # The wish was judged when it was made; what is left to decide is whose turn it is.
    verdicts = rules.judge_retries(structs.replace(letter, asked=False) for letter in found.letters)
    begun = [found.rows[letter.id] for letter, one in verdicts if isinstance(one, RetryNow)]
    resumed = 0
    for row in begun:
        edited = row["edit"] is not None
        wish = Wish(
            actor=row["retry_asked_by"],
            input=row["retry_input"] if edited else UNSET,
            key=UNSET if row["retry_key"] is None else row["retry_key"][0],
        )
        queued = await _begin_rounds(connection, [row], wish, times.schedule)
        if queued is not None:
            edit = msgspec.convert(row["edit"], list[InputChange]) if edited else None
            await _resolve(connection, [(row, edit)], wish.actor, queued, times)
            resumed += 1
    return resumed


async def resume_at_once(
    connection: Connection, manifests: Collection[UUID], *, now: datetime
) -> None:
    """The same for manifests whose work has just left a slot, by whoever holds its rows.

    Without waiting for anybody: what is not possible now is left to the pass.
    """
    if manifests and await connection.fetchval(prune_queries["try_share_lock"], BURY_LOCK):
        times = Times(real=await store.read_now(connection), schedule=now)
        await resume(connection, list(manifests), times=times)


async def _lock(connection: Connection, ids: Sequence[UUID]) -> _Found:
    """Lock work, then letters, and read them.

    Those of pruned manifests are left alone: whoever deletes them begins with the letters.
    """
    known = await connection.fetch(letter_queries["works_of"], sorted(set(ids)))
    buried = [row for row in known if row["pruned"]]
    kept = [row for row in known if not row["pruned"]]
    await connection.execute(letter_queries["lock_works"], sorted({row["work_id"] for row in kept}))
    rows = await connection.fetch(letter_queries["lock"], [row["id"] for row in kept])
    letters = [_letter(row) for row in rows]
    letters += [
        Letter(id=row["id"], work=row["work_id"], round=row["round"], state="", pruned=True)
        for row in buried
    ]
    return _Found(letters=letters, rows={row["id"]: row for row in rows})


def _letter(row: Any) -> Letter:
    manifest = row["manifest_id"]
    return Letter(
        id=row["id"],
        work=row["work_id"],
        round=row["round"],
        state=row["state"],
        asked=row["retry_asked_at"] is not None,
        slot=None if manifest is None else (manifest, row["slot"]),
        taken_by=row["taken_by"],
        job_retired=row["job_retired"],
    )


async def _begin_rounds(
    connection: Connection, begun: Sequence[Any], wish: Wish, now: datetime
) -> dict[UUID, Any] | None:
    """Queue work again; returns it as it is queued, by its id.

    None, with nothing changed, if a slot was taken at this moment.
    """
    for row in begun:
        next_work_state(row["work_state"], "retried")
    edited = wish.input is not UNSET
    try:
        async with savepoint(connection):
            rows = await connection.fetch(
                letter_queries["requeue"],
                [row["work_id"] for row in begun],
                [row["round"] + 1 for row in begun],
                [edited for _ in begun],
                json_array(wish.input if edited else None for _ in begun),
                now,
                [_retried_in(row) for row in begun],
                wish.key is not UNSET,
                None if wish.key is UNSET else wish.key,
            )
    except asyncpg.UniqueViolationError:
        return None
    return {row["id"]: row for row in rows}


def _retried_in(row: Any) -> str | None:
    """The trace of the work and, linked by its next run, that somebody has its letter retried."""
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
    """Letters whose work is queued again; history keeps how it is queued."""
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
            **_told(row, actor, times), round=row["round"] + 1, slot=row["slot"], edit=edit or []
        )
        for row, edit in begun
    ]
    await _tell(connection, events, times, queued)


async def _ask(connection: Connection, asked: Sequence[Any], wish: Wish, times: Times) -> None:
    """Letters that are to be retried once their slot is free."""
    for row in asked:
        edit = wish.edit_of(row)
        given = None if edit is None else wish.input
        await connection.execute(
            letter_queries["ask"],
            row["id"],
            wish.actor,
            given,
            edit,
            times.schedule,
            None if wish.key is UNSET else [wish.key],
        )
    records = [
        Record(
            event_id=str(new_id()),
            type="headway.dead_letter.retry_asked.v1",
            subject=str(row["id"]),
            source=f"operator/{wish.actor}",
            occurred_at=times.schedule,
            data={"dead_letter": row["id"], "work": row["work_id"], "waits_for": row["taken_by"]},
        )
        for row in asked
    ]
    await HISTORY.append(connection, records, now=times.real)


async def _tell(
    connection: Connection,
    events: Sequence[DeadLetterRetried | DeadLetterAcknowledged],
    times: Times,
    queued: Mapping[UUID, Any] = MappingProxyType({}),
) -> None:
    messages = [resolved_message(one, _context(queued.get(one.work))) for one in events]
    await OUTBOX.add(connection, messages)
    records = [
        Record(
            event_id=message.message_id,
            type=one.type,
            subject=str(one.dead_letter),
            source=f"operator/{one.actor}",
            occurred_at=one.resolved_at,
            data=msgspec.to_builtins(one) | _kept(queued.get(one.work)),
        )
        for one, message in zip(events, messages, strict=True)
    ]
    await HISTORY.append(connection, records, now=times.real)


def _context(queued: Any) -> str | None:
    """The span in which a retry was asked for, if anybody records such."""
    stored: str | None = None if queued is None else queued["traceparent"]
    return stored.split(CONTEXTS_APART)[-1] if stored else None


def _kept(queued: Any) -> dict[str, Any]:
    """What history needs beside the event to tell what the work is like in its new round."""
    if queued is None:
        return {}
    return {name: queued[name] for name in _OF_THE_ROUND}


def _told(row: Any, actor: str, times: Times) -> dict[str, Any]:
    return {
        "dead_letter": row["id"],
        "work": row["work_id"],
        "manifest_id": row["manifest_id"],
        "manifest": row["manifest"],
        "group": row["group_name"],
        "actor": actor,
        "resolved_at": times.schedule,
    }
