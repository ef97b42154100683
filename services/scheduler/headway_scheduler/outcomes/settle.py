"""Apply the events of the dispatcher: settle work, move manifests on, wake dependents.

Events may arrive twice, late and in any order. An outcome that was applied before finds no work
row, an activation is in the ledger already, and a pruned manifest is gone: each changes nothing.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from headway_contract import Event, settled, subjects
from headway_contract.notifications import WorkDeadLettered
from headway_contract.settled import DeadLetterAcknowledged, DeadLetterRetried, WorkSettled
from headway_decisions.firing import identity
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake
from headway_postgres_kit import Connection, Database, note
from headway_relay import events_in
from headway_service_kit.passes import Wakeup
from headway_tracing import is_recording, span, traceparent

from headway_scheduler import store
from headway_scheduler.declare import prune
from headway_scheduler.fire.decide import LedgerRow
from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.tick import earliest, reschedule_wake, write_ledger
from headway_scheduler.notifications.recorder import Notification
from headway_scheduler.outcomes.activate import activate, targets_of
from headway_scheduler.outcomes.close import Closed, close, judge_completed
from headway_scheduler.store import columns, lock_manifests, manifests, occurrences, works

COALESCED = "coalesced"

# Causes that occur once; a due time is followed by the next.
_IRREPLACEABLE = ("success", "activation", "trigger", "backfill")
_KEPT_WHEN_REPEATED = (
    *("actor", "explicit", "has_input", "input", "priority", "start_within_seconds"),
)
# A reason may quote a failure; the dead letter has all of it.
_LONGEST_REASON = 1000
_NEVER = datetime.max.replace(tzinfo=UTC)


def settled_intake(database: Database, broker: Broker, *, tick: Wakeup) -> Intake:
    """Return the intake of the stream of settled work; it ignores other events."""

    async def handle(messages: list[Message]) -> None:
        events = [event for message in messages for event in events_in(message)]
        with ExitStack() as traces:
            # Dependents link to the trace in which the success of their parent was settled.
            successes: dict[UUID, str] = {}
            for event in events:
                if isinstance(event.data, WorkSettled):
                    outcome, parent = event.data.outcome, event.data.manifest_id
                    traces.enter_context(span("settle", parent=event.traceparent, outcome=outcome))
                    context = traceparent()
                    if parent is not None and outcome == "completed" and context is not None:
                        successes[parent] = context
            async with store.writing(database) as (connection, now):
                wake_at = await take_in(connection, events, now=now)
                if is_recording():
                    await _store_traces(connection, events, successes)
        tick.call_by(wake_at)

    puller = Puller(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    return store.REJECTED.intake(database, broker, puller, handle)


async def _store_traces(
    connection: Connection, events: Sequence[Event], successes: dict[UUID, str]
) -> None:
    """Store the traces that the work of dependents links to."""
    if successes:
        await connection.execute(
            manifests["store_traces"], list(successes), list(successes.values())
        )
    activated = [
        (activation.manifest, identity.activation_cause(event.data.work, activation.key), context)
        for event in events
        if isinstance(event.data, settled.ActivationRequested) and (context := event.traceparent)
        for activation in event.data.activations
    ]
    if activated:
        columns = map(list, zip(*activated, strict=True))
        await connection.execute(occurrences["store_traces"], *columns)


async def take_in(
    connection: Connection, events: Sequence[Event], *, now: datetime
) -> datetime | None:
    """Apply a batch of events, starts of rounds before their ends.

    Returns when the tick must look at the manifests that moved on, or `None`.
    """
    outcomes = _of(events, WorkSettled)
    # An outcome repeats its activations, in case their own events were lost.
    requests = [
        *_of(events, settled.ActivationRequested),
        *(outcome for outcome in outcomes if outcome.manifest_id is not None),
    ]
    resolutions = _of(events, DeadLetterRetried, DeadLetterAcknowledged)
    ended = {outcome.manifest_id for outcome in outcomes} - {None}
    succeeded = {outcome.manifest_id for outcome in outcomes if outcome.outcome == "completed"} - {
        None
    }
    others = {resolved.manifest_id for resolved in resolutions} - {None}
    others |= await targets_of(connection, requests)
    # All of them at once, in the lock order of the tick, to avoid a deadlock.
    rows = await connection.fetch(
        manifests["lock_with_children"], list(ended | others), list(succeeded)
    )
    wake_at = [await activate(connection, requests, now=now)]
    wake_at += [await resolve(connection, resolved, now=now) for resolved in resolutions]
    affected = {row["id"] for row in rows if row["id"] in ended or row["depends_on"] in succeeded}
    wake_at.append(await settle(connection, outcomes, affected, now=now))
    confirmed = [event.manifest_id for event in _of(events, settled.PruneConfirmed)]
    await prune.confirm(connection, confirmed, now=now)
    return earliest(wake_at)


def _of(events: Sequence[Event], *kinds: type[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kinds)]


async def settle(
    connection: Connection,
    outcomes: Sequence[WorkSettled],
    locked: Iterable[UUID],
    *,
    now: datetime,
) -> datetime | None:
    """Close outstanding work and move its manifests on; returns when the tick must look at them.

    `locked` are the affected manifests: manifests are locked before their work, to avoid a
    deadlock. An outcome that was applied before finds neither its work nor its round open.
    """
    ends = {outcome.work: outcome for outcome in sorted(outcomes, key=lambda end: end.round)}
    if not ends:
        return None
    await _note_dead_letters(connection, ends.values())
    closed = await _find_open(connection, ends)
    affected = await _with_new_children(connection, set(locked), closed)
    # Work without a manifest is closed, and nothing else follows.
    owned = [work for work in closed if work.manifest in affected]
    room_at: dict[UUID, datetime] = {}
    for work in owned:
        # The first outcome made room, and so ended the pause of its manifest.
        room_at[work.manifest] = min(work.end.settled_at, room_at.get(work.manifest, _NEVER))
    came_due = {work.manifest for work in owned if work.came_due}
    await skip_missed_during_pause(connection, came_due, until=room_at, now=now)
    moved = await judge_completed(connection, owned, now)
    await close(connection, closed, owned, moved, now)
    without_manifest = [work.id for work in closed if work.end.manifest_id is None]
    if without_manifest:
        await connection.execute(store.enqueued["settled"], without_manifest, now)
    await _owe_coalesced(connection, owned, now)
    wake_at = [move.wake_at for move in moved.values()]
    others = affected - moved.keys()
    if others:
        wake_at.append(await reschedule_wake(connection, others, now=now))
    one_shots = {work.manifest for work in owned if work.one_shot} & others
    if one_shots:
        await connection.fetch(manifests["retire"], list(one_shots))
    return earliest(wake_at)


async def _note_dead_letters(connection: Connection, outcomes: Iterable[WorkSettled]) -> None:
    """Note new dead letters with their jobs, before the rows of enqueued work are deleted."""
    dead = [(letter, end) for end in outcomes if (letter := end.dead_letter) is not None]
    if not dead:
        return
    ends = [end for _, end in dead]
    rows = await connection.fetch(works["jobs"], *columns(ends, "work", "manifest_id"))
    jobs = {row["id"]: row["job"] for row in rows}
    for letter, end in dead:
        data = WorkDeadLettered(
            dead_letter=letter,
            work=end.work,
            round=end.round,
            manifest=end.manifest,
            group=end.group,
            job=jobs[end.work],
            reason=end.reason[:_LONGEST_REASON],
            attempts=end.attempts,
        )
        note(Notification(identity=f"dead_lettered {letter}", subject=str(letter), data=data))


async def _find_open(connection: Connection, ends: dict[UUID, WorkSettled]) -> list[Closed]:
    """Find the work that is not settled yet, by its row or by its decision."""
    rows = await connection.fetch(works["lock"], sorted(ends))
    found = [
        Closed(
            id=row["id"],
            manifest=row["manifest_id"],
            cause=row["cause"],
            end=end,
            slot=row["slot"],
            children=row["children"],
            came_due=row["depends_on"] is not None
            or (row["next_due_at"] is not None and row["next_due_at"] <= end.settled_at),
            one_shot=row["cadence"] == "once",
            is_dependent=row["depends_on"] is not None,
        )
        for row in rows
        if (end := ends[row["id"]]).round >= row["round"]
    ]
    for work in set(ends) - {row["id"] for row in rows}:
        end = ends[work]
        if end.round == 1:
            continue
        # The event that started this round has not arrived yet, but the round is over.
        if end.manifest_id is None:
            # The ledger does not know it, so the round must be remembered.
            await connection.execute(works["overtake"], work, end.round, end.settled_at)
            continue
        known = await connection.fetchrow(occurrences["of_work"], end.manifest_id, work)
        if known is not None and known["settled_round"] < end.round:
            found.append(Closed(id=work, manifest=end.manifest_id, cause=known["cause"], end=end))
    return found


async def _with_new_children(
    connection: Connection, locked: set[UUID], closed: Sequence[Closed]
) -> set[UUID]:
    """Lock dependents that were declared while this transaction waited for its locks."""
    late = {
        child
        for work in closed
        if work.end.outcome == "completed" and work.manifest in locked
        for child in work.children
    } - locked
    return locked | set(await lock_manifests(connection, late)) if late else locked


async def _owe_coalesced(connection: Connection, owned: Sequence[Closed], now: datetime) -> None:
    """Owe again each success, activation, trigger or backfill whose work was coalesced."""
    lost = [
        work
        for work in owned
        if work.end.outcome == COALESCED and identity.kind_of(work.cause) in _IRREPLACEABLE
    ]
    if not lost:
        return
    known = await connection.fetch(occurrences["of_causes"], *columns(lost, "manifest", "cause"))
    for row in known:
        cause, fresh = row["cause"], False
        # The next cause may be taken, since a forgotten decision may have had the same key.
        while not fresh:
            cause = identity.repeated_cause(cause)
            kept = {name: row[name] for name in _KEPT_WHEN_REPEATED}
            owed = LedgerRow.owed(row["manifest_id"], cause, now, reason=COALESCED, **kept)
            fresh = owed.key in await write_ledger(connection, [owed], now=now)
        await connection.execute(occurrences["note_again"], owed.manifest, row["cause"], cause)


async def resolve(
    connection: Connection, resolved: DeadLetterRetried | DeadLetterAcknowledged, *, now: datetime
) -> datetime | None:
    """Unblock the manifest of a resolved dead letter; returns when the tick must look at it.

    A retry that was applied before starts nothing: its round may be over, and if its decision was
    deleted, the resolved dead letter is the only trace of it.
    """
    if resolved.manifest_id is None:
        if isinstance(resolved, DeadLetterRetried):
            over = await connection.fetchval(works["overtaken"], resolved.work)
            if over is None or over < resolved.round:
                await _start_round(connection, resolved, f"replay:{resolved.work}", now)
        return None
    locked = await lock_manifests(connection, [resolved.manifest_id])
    if not locked:
        return None
    until = min(resolved.resolved_at, now)
    await skip_missed_during_pause(connection, locked, until=until, now=now)
    is_new = await connection.fetchval(occurrences["note_resolved"], resolved.dead_letter, now)
    await connection.execute(manifests["unblock"], locked, resolved.dead_letter)
    if is_new and isinstance(resolved, DeadLetterRetried):
        known = await connection.fetchrow(
            occurrences["of_work"], resolved.manifest_id, resolved.work
        )
        if known is None or known["settled_round"] < resolved.round:
            cause = f"replay:{resolved.work}" if known is None else known["cause"]
            await _start_round(connection, resolved, cause, now)
    wake_at = await reschedule_wake(connection, locked, now=now)
    # A one-shot whose time came while it was blocked is over.
    await connection.fetch(manifests["retire"], locked)
    return wake_at


async def _start_round(
    connection: Connection, retried: DeadLetterRetried, cause: str, now: datetime
) -> None:
    """Make the work of a retried dead letter outstanding again."""
    await connection.execute(
        works["start_round"],
        retried.work,
        retried.manifest_id,
        cause,
        retried.round,
        now,
        retried.slot,
    )
