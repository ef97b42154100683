"""The intake of the scheduler's messages: work, limits, cancels, prunes.

Work is known by its id, so a repeated message changes nothing. A message older than the retention
of settled work is ignored. Work whose slot already holds unsettled work is settled as coalesced,
and work of a pruned manifest as cancelled.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract import Event, subjects
from headway_contract.work import (
    JobChanged,
    ManifestPruned,
    WorkBroughtForward,
    WorkCancelRequested,
    WorkQueued,
)
from headway_history import Record
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consume import Intake
from headway_postgres_kit import Clock, Connection, Database, note
from headway_relay import events_in
from headway_service_kit.ignored_messages import IGNORED_MESSAGES
from headway_tracing import span

from headway_dispatcher import store
from headway_dispatcher.history import history_records
from headway_dispatcher.intake import limits, prune
from headway_dispatcher.metrics import Settled
from headway_dispatcher.operate import cancel
from headway_dispatcher.outbound_events import settled_message, settled_without_run
from headway_dispatcher.runs.settle import PRUNED, Changes
from headway_dispatcher.store import HISTORY, OUTBOX, REJECTED, works
from headway_dispatcher.wakeups import Wakeups


def work_intake(
    database: Database,
    broker: Broker,
    *,
    clock: Clock,
    wake: Wakeups,
    rank_step: timedelta,
    retention: timedelta,
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
            async with store.tombstone_transaction(database, exclusive=bool(pruned)) as connection:
                now = await clock.now(connection)
                events = _without_outdated(arrived, now - retention)
                data = [event.data for event in events]
                requests = [each for each in data if isinstance(each, WorkCancelRequested)]
                await limits.apply(connection, data)
                await prune.write_tombstones(connection, pruned, now, changes)
                queued, refused = await queue_work(
                    connection, events, now, rank_step, changes.records
                )
                await cancel.request_cancels(connection, requests, now, changes)
                await bring_forward(connection, data, now, changes.records)
                await changes.write(connection, now=now)
        if queued or changes.records:
            wake.gate.call(has_work=True)
        else:
            wake.gate.call()
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

    The scheduler asks about such work later and is told that it is too old.
    """
    recent = [
        event
        for event in events
        if event.time >= oldest or not isinstance(event.data, WorkQueued | WorkCancelRequested)
    ]
    IGNORED_MESSAGES.add("work_too_old", len(events) - len(recent))
    return recent


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
    records = [history_records.queued(event, row, now) for event, row in work]
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
    """Handle work that is of a pruned manifest, already known, or finds its slot taken."""
    arrived = await _cancel_pruned(connection, arrived, now, records)
    filled = await connection.fetch(works["fill_in"], [rows[work] for work in arrived])
    new = {row["id"] for row in filled}
    records += [history_records.queued(arrived[work], rows[work], now) for work in new]
    known = await _known(connection, arrived)
    IGNORED_MESSAGES.add("work_known_before", len(known - new))
    left = [(event, rows[work]) for work, event in arrived.items() if work not in known]
    if left:
        await _coalesce(connection, left, now, records)


async def _known(connection: Connection, ids: Any) -> set[UUID]:
    rows = await connection.fetch(works["known"], list(ids))
    return {row["id"] for row in rows}


async def _cancel_pruned(
    connection: Connection, arrived: dict[UUID, Event], now: datetime, records: list[Record]
) -> dict[UUID, Event]:
    """Report work of pruned manifests as cancelled; returns the other work.

    Known work may still run and reports its own end.
    """
    pruned = await store.pruned_manifests(
        connection, [event.data.manifest_id for event in arrived.values()]
    )
    of_pruned = {work: event for work, event in arrived.items() if event.data.manifest_id in pruned}
    if not of_pruned:
        return arrived
    known = await _known(connection, of_pruned)
    refused = [event for work, event in of_pruned.items() if work not in known]
    ends = [settled_without_run(event.data, "cancelled", PRUNED, now) for event in refused]
    await OUTBOX.add(connection, [settled_message(end) for end in ends])
    records += [history_records.refused(event, "manifest_pruned", now) for event in refused]
    note(*(Settled(event.data.group, event.data.job, "cancelled") for event in refused))
    return {work: event for work, event in arrived.items() if work not in of_pruned}


async def _coalesce(
    connection: Connection,
    work: Sequence[tuple[Event, dict[str, Any]]],
    now: datetime,
    records: list[Record],
) -> None:
    inserted = await _insert(connection, work, now, "settled")
    reason = "its manifest already had unsettled work"
    queued = [event.data for event, _ in work if event.data.work in inserted]
    ends = [settled_without_run(each, "coalesced", reason, now) for each in queued]
    await OUTBOX.add(connection, [settled_message(end) for end in ends])
    records += [history_records.settled(end) for end in ends]
    note(*(Settled(each.group, each.job, "coalesced") for each in queued))


async def bring_forward(
    connection: Connection, data: Sequence[Any], now: datetime, records: list[Record]
) -> None:
    """Give waiting work the first place in its group."""
    ids = {each.work for each in data if isinstance(each, WorkBroughtForward)}
    if ids:
        rows = await connection.fetch(works["bring_forward"], list(ids), now)
        records += history_records.brought_forward(rows, now)


def _row(event: Event, rank_step: timedelta) -> dict[str, Any]:
    work: WorkQueued = event.data
    row: dict[str, Any] = msgspec.to_builtins(work)
    row["rank"] = work.queued_at - rank_step * work.priority
    row["traceparent"] = event.traceparent
    return row
