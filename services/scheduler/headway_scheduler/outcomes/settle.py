"""Apply the events of the dispatcher: settle work, move manifests on, wake dependents.

Events may arrive twice, late and in any order. An outcome that was applied before finds no work
row, an activation is in the ledger already, and a pruned manifest is gone: each changes nothing.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any
from uuid import UUID

from headway_contract import Event, settled, subjects
from headway_contract.notifications import ManifestBlocked, WorkDeadLettered
from headway_contract.settled import (
    DeadLetterAcknowledged,
    DeadLetterRetried,
    WorksCompleted,
    WorkSettled,
)
from headway_decisions.firing import identity
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake
from headway_postgres_kit import Connection, Database, note
from headway_relay import events_in
from headway_service_kit.passes import Wakeup
from headway_tracing import is_recording, span, traceparent
from msgspec import Struct

from headway_scheduler import store
from headway_scheduler.declare import prune
from headway_scheduler.fire.decide import LedgerRow
from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.tick import earliest, reschedule_wake, write_ledger
from headway_scheduler.notifications.recorder import Notification
from headway_scheduler.outcomes.activate import activate, targets_of
from headway_scheduler.outcomes.resolve import resolve
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


class _Closed(Struct, frozen=True, kw_only=True):
    """Work that has ended.

    `came_due`: due times of its manifest may have passed while it was outstanding. The defaults are
    for work whose row is gone.
    """

    id: UUID
    manifest: UUID
    cause: str
    end: WorkSettled
    children: list[UUID] = []
    came_due: bool = True
    one_shot: bool = True


def settled_intake(database: Database, broker: Broker, *, tick: Wakeup) -> Intake:
    """Return the intake of the stream of settled work; it ignores other events."""

    async def handle(messages: list[Message]) -> None:
        events = [event for message in messages for event in events_in(message)]
        with ExitStack() as traces:
            successes = _begin_spans(traces, events) if is_recording() else {}
            async with store.writing(database) as (connection, now):
                wake_at = await take_in(connection, events, now=now)
                if is_recording():
                    await _store_traces(connection, events, successes)
        tick.call_by(wake_at)

    puller = Puller(broker, subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER)
    return store.REJECTED.intake(database, broker, puller, handle)


def _begin_spans(traces: ExitStack, events: Sequence[Event]) -> dict[UUID, str]:
    """Begin a span for each outcome; returns the traces that dependents link to, by parent."""
    successes: dict[UUID, str] = {}
    for event in events:
        ends, parents = [event.data], [event.traceparent]
        if isinstance(event.data, WorksCompleted):
            ends, parents = list(event.data.outcomes()), event.data.traceparents
        for end, parent in zip_longest(ends, parents):
            if isinstance(end, WorkSettled):
                traces.enter_context(span("settle", parent=parent, outcome=end.outcome))
                context = traceparent()
                if end.manifest_id and end.outcome == "completed" and context is not None:
                    successes[end.manifest_id] = context
    return successes


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
    outcomes, packed = _of(events, WorkSettled), _of(events, WorksCompleted)
    # An outcome repeats its activations, in case their own events were lost.
    requests = [
        *_of(events, settled.ActivationRequested),
        *(outcome for outcome in outcomes if outcome.manifest_id is not None),
    ]
    resolutions = _of(events, DeadLetterRetried, DeadLetterAcknowledged)
    succeeded = {outcome.manifest_id for outcome in outcomes if outcome.outcome == "completed"}
    succeeded.update(*(each.manifest_id for each in packed))
    changed = succeeded | {event.manifest_id for event in (*outcomes, *resolutions)}
    changed |= await targets_of(connection, requests)
    # All of them at once, in the lock order of the tick, to avoid a deadlock.
    locked = await connection.fetch(
        manifests["lock_with_children"], list(changed - {None}), list(succeeded - {None})
    )
    wake_at = [await activate(connection, requests, now=now)]
    wake_at += [await resolve(connection, resolved, now=now) for resolved in resolutions]
    left, first = await _settle_completed(connection, outcomes, packed, now)
    wake_at += [first, await settle(connection, left, locked, now=now)]
    confirmed = [event.manifest_id for event in _of(events, settled.PruneConfirmed)]
    await prune.confirm(connection, confirmed, now=now)
    return earliest(wake_at)


def _of(events: Sequence[Event], *kinds: type[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kinds)]


async def _settle_completed(
    connection: Connection,
    outcomes: Sequence[WorkSettled],
    packed: Sequence[WorksCompleted],
    now: datetime,
) -> tuple[list[WorkSettled], datetime | None]:
    """Settle completed work of which nothing has to be decided, which is most, in one statement.

    Returns the other outcomes, and when the tick must look at the manifests of that work.
    """
    completed = [outcome for outcome in outcomes if outcome.outcome == "completed"]
    stated = columns(completed, "work", "round", "manifest_id", "settled_at")
    for event in packed:
        stated[0] += event.work
        stated[1] += event.round
        stated[2] += event.manifest_id
        stated[3] += [event.settled_at] * len(event.work)
    if not stated[0]:
        return list(outcomes), None
    first, *rows = await connection.fetch(works["complete"], *stated, now)
    left = {row["id"] for row in rows}
    others = [end for end in outcomes if end.outcome != "completed" or end.work in left]
    if left:
        others += [end for event in packed for end in event.outcomes() if end.work in left]
    return others, first["wake_at"]


async def settle(
    connection: Connection, outcomes: Sequence[WorkSettled], locked: Sequence[Any], *, now: datetime
) -> datetime | None:
    """Close outstanding work and move its manifests on; returns when the tick must look at them.

    `locked` has the locked manifests: manifests are locked before their work, to avoid a deadlock.
    An outcome that was applied before finds neither its work nor its round open.
    """
    ends = {outcome.work: outcome for outcome in sorted(outcomes, key=lambda end: end.round)}
    if not ends:
        return None
    await _note_dead_letters(connection, ends.values())
    closed = await _find_open(connection, ends)
    ended = {end.manifest_id for end in outcomes}
    succeeded = {end.manifest_id for end in outcomes if end.outcome == "completed"} - {None}
    affected = {row["id"] for row in locked if row["id"] in ended or row["depends_on"] in succeeded}
    affected = await _with_new_children(connection, affected, closed)
    # Work without a manifest is closed, and nothing else follows.
    owned = [work for work in closed if work.manifest in affected]
    room_at: dict[UUID, datetime] = {}
    for work in owned:
        # The first outcome made room, and so ended the pause of its manifest.
        room_at[work.manifest] = min(work.end.settled_at, room_at.get(work.manifest, _NEVER))
    came_due = {work.manifest for work in owned if work.came_due}
    await skip_missed_during_pause(connection, came_due, until=room_at, now=now)
    await _close(connection, closed, affected, now)
    without_manifest = [work.id for work in closed if work.end.manifest_id is None]
    if without_manifest:
        await connection.execute(store.enqueued["settled"], without_manifest, now)
    await _owe_coalesced(connection, owned, now)
    wake_at = await reschedule_wake(connection, affected, now=now) if affected else None
    one_shots = [work.manifest for work in owned if work.one_shot]
    if one_shots:
        await connection.fetch(manifests["retire"], one_shots)
    return wake_at


async def _close(
    connection: Connection, closed: Sequence[_Closed], affected: set[UUID], now: datetime
) -> None:
    """Delete work that has ended, and write its outcome to its decisions and manifests."""
    letters = {
        work.end.dead_letter: work.manifest
        for work in closed
        if work.end.dead_letter and work.manifest in affected
    }
    resolved: set[UUID | None] = set()
    if letters:
        rows = await connection.fetch(
            occurrences["note_letters"], list(letters), list(letters.values())
        )
        resolved = {row["dead_letter"] for row in rows}
    for turn in _turns(closed):
        blocked = await connection.fetch(
            works["close"],
            [work.id for work in turn],
            [work.manifest if work.manifest in affected else None for work in turn],
            *columns(turn, "cause", "end.outcome", "end.round", "end.settled_at"),
            [None if (end := work.end.dead_letter) in resolved else end for work in turn],
            now,
        )
        for row in blocked:
            fact = f"blocked {row['dead_letter']}"
            data = ManifestBlocked(**dict(row))
            note(Notification(identity=fact, subject=data.manifest, data=data))


def _turns(closed: Sequence[_Closed]) -> list[list[_Closed]]:
    """Split work so that each turn has a manifest only once, the earlier outcome first."""
    turns: dict[int, list[_Closed]] = defaultdict(list)
    earlier: Counter[UUID] = Counter()
    for work in sorted(closed, key=lambda work: work.end.settled_at):
        turns[earlier[work.manifest]].append(work)
        earlier[work.manifest] += work.manifest is not None
    return list(turns.values())


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


async def _find_open(connection: Connection, ends: dict[UUID, WorkSettled]) -> list[_Closed]:
    """Find the work that is not settled yet, by its row or by its decision."""
    rows = await connection.fetch(works["lock"], sorted(ends))
    found = [
        _Closed(
            id=row["id"],
            manifest=row["manifest_id"],
            cause=row["cause"],
            end=end,
            children=row["children"],
            came_due=row["depends_on"] is not None
            or (row["next_due_at"] is not None and row["next_due_at"] <= end.settled_at),
            one_shot=row["cadence"] == "once",
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
            found.append(_Closed(id=work, manifest=end.manifest_id, cause=known["cause"], end=end))
    return found


async def _with_new_children(
    connection: Connection, locked: set[UUID], closed: Sequence[_Closed]
) -> set[UUID]:
    """Lock dependents that were declared while this transaction waited for its locks."""
    late = {
        child
        for work in closed
        if work.end.outcome == "completed" and work.manifest in locked
        for child in work.children
    } - locked
    return locked | set(await lock_manifests(connection, late)) if late else locked


async def _owe_coalesced(connection: Connection, owned: Sequence[_Closed], now: datetime) -> None:
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
