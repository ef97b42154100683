"""What an outcome does: close its work, move its manifest on, and wake its dependents."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, WorkSettled
from headway_decisions.firing import identity
from headway_postgres_kit import Connection, note
from msgspec import Struct

from headway_scheduler.fire.decide import reschedule_wake, skip_missed_during_pause
from headway_scheduler.fire.manifest import LedgerRow
from headway_scheduler.fire.record import write_ledger
from headway_scheduler.notifications.facts import Blocked, DeadLettered
from headway_scheduler.store import enqueued, lock_manifests, manifests, occurrences, works

COALESCED = "coalesced"

# What was asked for once and is never asked again by itself; a due time is followed by the next.
_IRREPLACEABLE = ("success", "activation", "trigger", "backfill")
_NEVER = datetime.max.replace(tzinfo=UTC)


class _Closed(Struct, frozen=True, kw_only=True):
    """A piece of work that has come to its end.

    `came_due` says that due times may have passed its manifest by while it was under way.
    """

    id: UUID
    manifest: UUID
    cause: str
    end: WorkSettled
    children: list[UUID] = []
    came_due: bool = True
    one_shot: bool = True


async def settle(
    connection: Connection,
    outcomes: Sequence[WorkSettled],
    locked: Iterable[UUID],
    *,
    now: datetime,
) -> datetime | None:
    """Close outstanding work and move its manifests on; tells when the tick has to look at them.

    `locked` are the manifests that are concerned: manifests are locked before their work, as
    everywhere, or two of us could wait for each other. An outcome that was told before finds
    neither its work nor its round open, and changes nothing.
    """
    told = {outcome.work: outcome for outcome in sorted(outcomes, key=lambda one: one.round)}
    if not told:
        return None
    await _note_dead_letters(connection, told.values())
    closed = await _open_work(connection, told)
    concerned = await _with_new_children(connection, set(locked), closed)
    # Work without a manifest is closed, and nothing else follows.
    owned = [work for work in closed if work.manifest in concerned]
    ends: dict[UUID, datetime] = {}
    for work in owned:
        # The first of several to end made room, and so ended the pause.
        ends[work.manifest] = min(work.end.settled_at, ends.get(work.manifest, _NEVER))
    paused = {work.manifest for work in owned if work.came_due}
    await skip_missed_during_pause(connection, paused, until=ends, now=now)
    await _close(connection, closed, owned, now)
    await _release_enqueued(connection, closed, now)
    await _owe_again(connection, owned, now)
    wake_at = await reschedule_wake(connection, concerned, now=now)
    one_shots = {work.manifest for work in owned if work.one_shot}
    if one_shots:
        await connection.fetch(manifests["retire"], list(one_shots))
    return wake_at


async def _note_dead_letters(connection: Connection, outcomes: Iterable[WorkSettled]) -> None:
    """Note work that needs a person, with its job, before what was enqueued is forgotten."""
    dead = {outcome.work: outcome for outcome in outcomes if outcome.dead_letter is not None}
    if dead:
        manifest_ids = [outcome.manifest_id for outcome in dead.values()]
        rows = await connection.fetch(works["jobs"], list(dead), manifest_ids)
        note(*(DeadLettered(outcome=dead[row["id"]], job=row["job"]) for row in rows))


async def _release_enqueued(
    connection: Connection, closed: Sequence[_Closed], now: datetime
) -> None:
    """What applications have enqueued need no longer be kept."""
    without_manifest = [work.id for work in closed if work.end.manifest_id is None]
    if without_manifest:
        await connection.execute(enqueued["settled"], without_manifest, now)


def manifests_of(outcomes: Sequence[WorkSettled]) -> tuple[set[UUID], set[UUID]]:
    """The manifests whose work has ended, and those among them that succeeded."""
    own = {one.manifest_id for one in outcomes if one.manifest_id is not None}
    return own, own & {one.manifest_id for one in outcomes if one.outcome == "completed"}


async def _with_new_children(
    connection: Connection, locked: set[UUID], closed: Sequence[_Closed]
) -> set[UUID]:
    """Those that are locked, and dependents that were declared while we waited for the locks."""
    children = {
        child
        for work in closed
        if work.end.outcome == "completed" and work.manifest in locked
        for child in work.children
    }
    late = children - locked
    return locked | set(await lock_manifests(connection, late)) if late else locked


async def resolve(
    connection: Connection, resolved: DeadLetterRetried | DeadLetterAcknowledged, *, now: datetime
) -> datetime | None:
    """A dead letter was seen to: its manifest is no longer blocked by it.

    Tells when the tick has to look at that. A retry that was told before begins nothing: its
    round may be over and, with a decision that is long forgotten, leave no trace but this.
    """
    if resolved.manifest_id is None:
        if isinstance(resolved, DeadLetterRetried):
            await _start_enqueued(connection, resolved, now)
        return None
    locked = await lock_manifests(connection, [resolved.manifest_id])
    if not locked:
        return None
    await skip_missed_during_pause(
        connection, locked, until=min(resolved.resolved_at, now), now=now
    )
    news = await connection.fetchval(occurrences["note_resolved"], resolved.dead_letter, now)
    await connection.execute(manifests["unblock"], locked, resolved.dead_letter)
    if news and isinstance(resolved, DeadLetterRetried):
        await _start_round(connection, resolved, resolved.manifest_id, now)
    wake_at = await reschedule_wake(connection, locked, now=now)
    # A one-shot whose time came while it was blocked has had its shot.
    await connection.fetch(manifests["retire"], locked)
    return wake_at


async def _start_round(
    connection: Connection, retried: DeadLetterRetried, manifest: UUID, now: datetime
) -> None:
    """The work is under way again, unless that round is over already."""
    known = await connection.fetchrow(occurrences["of_work"], manifest, retried.work)
    if known is not None and known["settled_round"] >= retried.round:
        return
    cause = f"replay:{retried.work}" if known is None else known["cause"]
    await connection.execute(
        works["start_round"], retried.work, manifest, cause, retried.round, now, retried.slot
    )


async def _start_enqueued(
    connection: Connection, retried: DeadLetterRetried, now: datetime
) -> None:
    """Work without a manifest is under way again, unless that round is over already."""
    over = await connection.fetchval(works["overtaken"], retried.work)
    if over is None or over < retried.round:
        cause = f"replay:{retried.work}"
        await connection.execute(
            works["start_round"], retried.work, None, cause, retried.round, now, retried.slot
        )


async def _open_work(connection: Connection, told: dict[UUID, WorkSettled]) -> list[_Closed]:
    """The work among what was told that is not settled yet, by its row or by its decision."""
    rows = await connection.fetch(works["lock"], sorted(told))
    found = [_closed(row, told[row["id"]]) for row in rows if told[row["id"]].round >= row["round"]]
    for work in set(told) - {row["id"] for row in rows}:
        end = told[work]
        if end.round > 1 and end.manifest_id is None:
            # No ledger remembers it, and its beginning may still be on its way.
            await connection.execute(works["overtake"], work, end.round, end.settled_at)
        # A round whose beginning we have not heard of yet: it is over all the same.
        if end.round > 1 and end.manifest_id is not None:
            known = await connection.fetchrow(occurrences["of_work"], end.manifest_id, work)
            if known is not None and known["settled_round"] < end.round:
                found.append(
                    _Closed(id=work, manifest=end.manifest_id, cause=known["cause"], end=end)
                )
    return found


def _closed(row: Any, end: WorkSettled) -> _Closed:
    due_at: datetime | None = row["next_due_at"]
    return _Closed(
        id=row["id"],
        manifest=row["manifest_id"],
        cause=row["cause"],
        end=end,
        children=row["children"],
        came_due=row["depends_on"] is not None or (due_at is not None and due_at <= end.settled_at),
        one_shot=row["cadence"] == "once",
    )


async def _close(
    connection: Connection, closed: Sequence[_Closed], owned: Sequence[_Closed], now: datetime
) -> None:
    """Remove work that has ended, and tell its decisions and its manifests how it did."""
    if not closed:
        return
    seen_to = await _note_letters(connection, owned)
    decisions = (
        [work.manifest for work in owned],
        [work.cause for work in owned],
        [work.end.outcome for work in owned],
        [work.end.round for work in owned],
    )
    # One row for each manifest and statement: several of its works may end in one batch.
    first, *others = _turns(owned) or [[]]
    ids = [work.id for work in closed]
    columns = _as_columns(first, seen_to)
    blocked = await connection.fetch(works["close"], ids, *decisions, *columns, now)
    for turn in others:
        columns = _as_columns(turn, seen_to)
        blocked += await connection.fetch(works["close"], [], [], [], [], [], *columns, now)
    note(*(Blocked(**dict(row)) for row in blocked))


async def _note_letters(connection: Connection, owned: Sequence[_Closed]) -> set[UUID]:
    """Keep dead letters until somebody has seen to them; returns those that were already."""
    left = {
        work.end.dead_letter: work.manifest for work in owned if work.end.dead_letter is not None
    }
    if not left:
        return set()
    rows = await connection.fetch(occurrences["note_letters"], list(left), list(left.values()))
    return {row["dead_letter"] for row in rows}


def _as_columns(turn: Sequence[_Closed], seen_to: set[UUID]) -> tuple[list[Any], ...]:
    """What outcomes do to their manifests, as the parameters of a statement."""
    letters = [work.end.dead_letter for work in turn]
    return (
        [work.manifest for work in turn],
        [work.end.outcome for work in turn],
        [work.end.settled_at for work in turn],
        [None if letter in seen_to else letter for letter in letters],
    )


def _turns(owned: Sequence[_Closed]) -> list[list[_Closed]]:
    """Split so that no manifest is named twice in one turn, the earlier outcome first."""
    turns: list[dict[UUID | None, _Closed]] = []
    for work in sorted(owned, key=lambda work: work.end.settled_at):
        for turn in turns:
            if work.manifest not in turn:
                turn[work.manifest] = work
                break
        else:
            turns.append({work.manifest: work})
    return [list(turn.values()) for turn in turns]


async def _owe_again(connection: Connection, owned: Sequence[_Closed], now: datetime) -> None:
    """A success, an activation or a trigger whose work was coalesced stays owed."""
    lost = [
        work
        for work in owned
        if work.end.outcome == COALESCED and identity.kind_of(work.cause) in _IRREPLACEABLE
    ]
    if not lost:
        return
    known = await connection.fetch(
        occurrences["of_causes"],
        [work.manifest for work in lost],
        [work.cause for work in lost],
    )
    for row in known:
        await _owe(connection, row, now)


async def _owe(connection: Connection, known: Any, now: datetime) -> None:
    """Owe again what a decision asked for, under a name of its own.

    The next may be taken, since the same key was used before, and forgotten.
    """
    cause, fresh = known["cause"], False
    while not fresh:
        cause = identity.repeated_cause(cause)
        row = LedgerRow(
            manifest=known["manifest_id"],
            cause=cause,
            first_due_at=now,
            last_due_at=now,
            decision="owed",
            reason=COALESCED,
            actor=known["actor"],
            explicit=known["explicit"],
            has_input=known["has_input"],
            input=known["input"],
        )
        fresh = row.key in await write_ledger(connection, [row], now=now)
    await connection.execute(occurrences["note_again"], row.manifest, known["cause"], cause)
    terms = (known["priority"], known["start_within_seconds"])
    if terms != (None, None):
        await connection.execute(occurrences["set_terms"], row.manifest, [cause], *terms)
