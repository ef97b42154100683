"""The intake of the scheduler's messages: work, limits, cancels, prunes.

Work is known by its id, so a repeated message changes nothing. A message older than the retention
of settled work is ignored. Work whose slot already holds unsettled work is settled as coalesced,
and work of a pruned manifest as cancelled.

Limits may arrive in any order, so each has a version and applies only if it is newer than the known
one. A group without a row has no limits; a deleted group loses its row. Limits change only between
two passes of the gate, so that admitted work is within the limits in force when the gate commits.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract import Event, subjects
from headway_contract.work import (
    GroupChanged,
    JobChanged,
    ManifestChanged,
    ManifestPruned,
    WorkBroughtForward,
    WorkCancelRequested,
    WorkQueued,
    terms_to_store,
)
from headway_history import Record
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake
from headway_postgres_kit import Connection, Database, note
from headway_relay import events_in
from headway_service_kit.ignored_messages import count_ignored
from headway_tracing import span
from msgspec import structs

from headway_dispatcher import store
from headway_dispatcher.events import (
    forward_record,
    outbox_message,
    queued_record,
    settled_event,
    settled_record,
    settled_without_run,
)
from headway_dispatcher.intake import prune
from headway_dispatcher.metrics import SETTLED, Sample
from headway_dispatcher.operate import cancel
from headway_dispatcher.runs.settle import PRUNED, Changes
from headway_dispatcher.store import (
    GATE_LOCK,
    HISTORY,
    OUTBOX,
    REJECTED,
    TOMBSTONE_LOCK,
    gates,
    works,
)
from headway_dispatcher.wakeups import Wakeups


def work_intake(
    database: Database, broker: Broker, *, wake: Wakeups, rank_step: timedelta, retention: timedelta
) -> Intake:
    """Return the intake of the scheduler's messages.

    `rank_step` is the age that one step of priority is worth; `retention` is that of settled work.
    """
    # Jobs for which the pass over consumers was woken; it also polls, but later.
    jobs_seen: set[str] = set()

    async def handle(messages: list[Message]) -> None:
        arrived = [event for message in messages for event in events_in(message)]
        pruned = [event.data for event in arrived if isinstance(event.data, ManifestPruned)]
        changes = Changes()
        with span("intake", events=len(arrived)):
            async with database.locked_transaction(TOMBSTONE_LOCK, shared=not pruned) as connection:
                now = await database.clock.now(connection)
                events = _without_outdated(arrived, now - retention)
                data = [event.data for event in events]
                requests = [each for each in data if isinstance(each, WorkCancelRequested)]
                await apply_limits(connection, data)
                await prune.write_tombstones(connection, pruned, now, changes)
                queued, refused = await queue_work(
                    connection, events, now, rank_step, changes.records
                )
                await cancel.request_cancels(connection, requests, now, changes)
                await bring_forward(connection, data, now, changes.records)
                await changes.write(connection, now=now)
        wake.gate.call(has_work=queued or bool(changes.records))
        if refused or requests or pruned:
            wake.relay.call()
        if requests:
            wake.cancels.call()
        if pruned:
            wake.prunes.call()
        jobs = {each.job for each in data if isinstance(each, WorkQueued)} - jobs_seen
        if jobs or any(isinstance(each, JobChanged) for each in data):
            jobs_seen.update(jobs)
            wake.consumers.call()

    puller = Puller(broker, subjects.WORK_STREAM, subjects.WORK_CONSUMER)
    return REJECTED.intake(database, broker, puller, handle)


def _without_outdated(events: list[Event], oldest: datetime) -> list[Event]:
    """Drop messages whose work may have been settled and deleted here.

    The scheduler asks about such work later, and the answer is that it is too old.
    """
    recent = [
        event
        for event in events
        if event.time >= oldest or not isinstance(event.data, WorkQueued | WorkCancelRequested)
    ]
    count_ignored("work_too_old", len(events) - len(recent))
    return recent


async def apply_limits(connection: Connection, data: Sequence[Any]) -> None:
    """Store the newest version of each limit; hold work of disabled manifests."""
    groups = _newest(data, GroupChanged, "group")
    jobs = _newest(data, JobChanged, "job")
    switches = _newest(data, ManifestChanged, "manifest_id")
    if groups or jobs:
        await connection.execute(gates["lock_gate"], GATE_LOCK)
    limits = [change for change in groups if not change.deleted]
    if limits:
        await connection.execute(works["apply_group"], limits)
    deleted = [change for change in groups if change.deleted]
    if deleted:
        await connection.execute(works["delete_groups"], deleted)
    if jobs:
        await connection.execute(works["apply_job"], jobs)
    if switches:
        rows = await connection.fetch(works["apply_switch"], switches)
        disabled = [row["manifest_id"] for row in rows if not row["enabled"]]
        if disabled:
            await connection.execute(works["hold_disabled"], disabled)
        enabled = [row["manifest_id"] for row in rows if row["enabled"]]
        if enabled:
            await connection.execute(works["release_held"], enabled)


def _newest(data: Sequence[Any], kind: type[Any], key: str) -> list[Any]:
    """Return the newest change of each group, job or manifest."""
    newest: dict[Any, Any] = {}
    for change in data:
        if isinstance(change, kind):
            known = newest.get(getattr(change, key))
            if known is None or change.version > known.version:
                newest[getattr(change, key)] = change
    return list(newest.values())


async def queue_work(
    connection: Connection,
    events: list[Event],
    now: datetime,
    rank_step: timedelta,
    records: list[Record],
) -> tuple[bool, bool]:
    """Queue new work; returns whether some was queued, and whether some was not."""
    arrived = {event.data.work: event for event in events if isinstance(event.data, WorkQueued)}
    if not arrived:
        return False, False
    rows = {work: _row(event, rank_step) for work, event in arrived.items()}
    queued = await _insert(
        connection, [(arrived[work], row) for work, row in rows.items()], now, "queued"
    )
    left = {work: event for work, event in arrived.items() if work not in queued}
    if left:
        await _handle_not_queued(connection, left, rows, now, records)
    return bool(queued), bool(left)


async def _insert(
    connection: Connection,
    work: Sequence[tuple[Event, dict[str, Any]]],
    now: datetime,
    state: Literal["queued", "settled"],
) -> set[UUID]:
    """Insert work and its history; returns the ids that were new."""
    records = [queued_record(event, row, now) for event, row in work]
    rows = await connection.fetch(
        works["insert"], [row for _, row in work], now, state, *HISTORY.columns(records)
    )
    return {row["id"] for row in rows}


async def _handle_not_queued(
    connection: Connection,
    arrived: dict[UUID, Event],
    rows: dict[UUID, dict[str, Any]],
    now: datetime,
    records: list[Record],
) -> None:
    """Handle work that is already known, of a pruned manifest, or finds its slot taken.

    Known work of a pruned manifest may still run and reports its own end.
    """
    pruned = await store.pruned_manifests(
        connection, [event.data.manifest_id for event in arrived.values()]
    )
    of_pruned = {work for work, event in arrived.items() if event.data.manifest_id in pruned}
    others = [row for work, row in rows.items() if work in arrived.keys() - of_pruned]
    filled = await connection.fetch(works["fill_in"], others)
    records += [queued_record(arrived[row["id"]], rows[row["id"]], now) for row in filled]
    known = {row["id"] for row in await connection.fetch(works["known"], list(arrived))}
    count_ignored("work_known_before", len(known) - len(filled))
    new = {work: event for work, event in arrived.items() if work not in known}
    refused = [event for work, event in new.items() if work in of_pruned]
    for event in refused:
        record = queued_record(event, msgspec.to_builtins(event.data), now)
        records.append(structs.replace(record, accepted=False, refusal="manifest_pruned"))
    left = [(event, rows[work]) for work, event in new.items() if work not in of_pruned]
    inserted = await _insert(connection, left, now, "settled") if left else set()
    coalesced = [event for event, _ in left if event.data.work in inserted]
    reason = "its manifest already had unsettled work"
    ends = [settled_without_run(event.data, "coalesced", reason, now) for event in coalesced]
    records += map(settled_record, ends)
    ends += [settled_without_run(event.data, "cancelled", PRUNED, now) for event in refused]
    await OUTBOX.add(connection, [outbox_message(settled_event(end)) for end in ends])
    note(*(Sample(SETTLED, (end.group, arrived[end.work].data.job, end.outcome)) for end in ends))


async def bring_forward(
    connection: Connection, data: Sequence[Any], now: datetime, records: list[Record]
) -> None:
    """Give waiting work the first place in its group."""
    ids = {each.work for each in data if isinstance(each, WorkBroughtForward)}
    if ids:
        rows = await connection.fetch(works["bring_forward"], list(ids), now)
        records += [forward_record(row, now) for row in rows]


def _row(event: Event, rank_step: timedelta) -> dict[str, Any]:
    work: WorkQueued = event.data
    row: dict[str, Any] = msgspec.to_builtins(work)
    row["rank"] = work.queued_at - rank_step * work.priority
    row["terms"] = terms_to_store(work.terms)
    row["traceparent"] = event.traceparent
    return row
