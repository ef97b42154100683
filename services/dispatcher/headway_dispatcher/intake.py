"""The intake: take work and limits over from the scheduler.

Work is known by its id, so a message that comes twice changes nothing. Work whose
manifest already has unsettled work in its slot is settled as coalesced; it never sticks.
"""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_contract import Event, encode, event, subjects
from headway_contract.settled import WorkSettled
from headway_contract.work import GroupChanged, WorkQueued
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consuming import Intake
from headway_postgres_kit import Connection, Database
from headway_relay import OutboxMessage, events_in
from headway_service_kit.passes import Wakeup
from headway_tracing import span

from headway_dispatcher import store
from headway_dispatcher.store import OUTBOX, REJECTED, SOURCE, works

# How much older one step of priority makes work look. Ageing is thereby built in.
RANK_STEP = timedelta(seconds=60)


def work_intake(database: Database, broker: Broker, *, gate: Wakeup, relay: Wakeup) -> Intake:
    """The intake of work and group limits."""

    async def handle(messages: list[Message]) -> None:
        events = [one for message in messages for one in events_in(message)]
        with span("intake", events=len(events)):
            async with database.transaction() as connection:
                now = await store.read_now(connection)
                await _apply_groups(connection, [one.data for one in events])
                await _take_in(connection, events, now)
        gate.call()
        relay.call()

    puller = Puller(broker, subjects.WORK_STREAM, subjects.WORK_CONSUMER)
    return REJECTED.intake(database, broker, puller, handle)


async def _apply_groups(connection: Connection, told: list[Any]) -> None:
    """Limits apply only if newer; within a batch the newest of each group is enough."""
    newest: dict[str, GroupChanged] = {}
    for change in told:
        if isinstance(change, GroupChanged):
            known = newest.get(change.group)
            if known is None or change.version > known.version:
                newest[change.group] = change
    if not newest:
        return
    changes = list(newest.values())
    await connection.execute(
        works["apply_group"],
        [change.group for change in changes],
        [change.max_active for change in changes],
        [change.priority for change in changes],
        [change.enabled for change in changes],
        [change.version for change in changes],
    )


async def _take_in(connection: Connection, events: list[Event], now: datetime) -> None:
    queued = {one.data.work: one for one in events if isinstance(one.data, WorkQueued)}
    if not queued:
        return
    await connection.execute(works["know_groups"], [one.data.group for one in queued.values()])
    rows = await connection.fetch(
        works["take_in"], [_row(one) for one in queued.values()], now, "queued"
    )
    left = set(queued) - {row["id"] for row in rows}
    if left:
        left -= {row["id"] for row in await connection.fetch(works["known"], list(left))}
    if left:
        await _coalesce(connection, [queued[work] for work in left], now)


async def _coalesce(connection: Connection, events: list[Event], now: datetime) -> None:
    rows = await connection.fetch(works["take_in"], [_row(one) for one in events], now, "settled")
    kept = {row["id"] for row in rows}
    await OUTBOX.add(
        connection, [_tell_coalesced(one.data, now) for one in events if one.data.work in kept]
    )


def _tell_coalesced(work: WorkQueued, now: datetime) -> OutboxMessage:
    settled = WorkSettled(
        work=work.work,
        round=work.round,
        manifest_id=work.manifest_id,
        manifest=work.manifest,
        group=work.group,
        outcome="coalesced",
        reason="its manifest already had unsettled work",
        runs=0,
        attempts=0,
        settled_at=now,
    )
    return settled_message(settled, None)


def settled_message(settled: WorkSettled, traceparent: str | None) -> OutboxMessage:
    """The message that tells how work ended."""
    message_id = f"settled.{settled.work}.{settled.round}"
    return OutboxMessage(
        message_id=message_id,
        subject=subjects.settled(settled.group),
        body=encode(
            event(
                settled,
                id=message_id,
                source=SOURCE,
                subject=settled.work,
                time=settled.settled_at,
                traceparent=traceparent,
            )
        ),
        traceparent=traceparent,
    )


def _row(queued: Event) -> dict[str, Any]:
    work: WorkQueued = queued.data
    row: dict[str, Any] = msgspec.to_builtins(work)
    row["rank"] = work.queued_at - RANK_STEP * work.priority
    row["traceparent"] = queued.traceparent
    return row
