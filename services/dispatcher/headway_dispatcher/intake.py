"""The intake: take over what the scheduler tells: work, limits, cancels, prunes.

Work is known by its id, so a message that comes twice changes nothing. Work whose
manifest already has unsettled work in its slot is settled as coalesced, and work whose
manifest was pruned as cancelled; it never sticks.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_contract import Event, subjects
from headway_contract.settled import Outcome, WorkSettled
from headway_contract.work import (
    GroupChanged,
    ManifestPruned,
    WorkBroughtForward,
    WorkCancelRequested,
    WorkQueued,
)
from headway_history import Record
from headway_jetstream_kit import Broker, Message, Puller
from headway_jetstream_kit.consuming import Intake
from headway_postgres_kit import Clock, Connection, Database
from headway_relay import events_in
from headway_service_kit.counting import PASSED_OVER
from headway_service_kit.passes import Wakeup
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher import cancels, prunes, recording, settling
from headway_dispatcher.store import HISTORY, OUTBOX, REJECTED, works
from headway_dispatcher.telling import settled_message

# How much older one step of priority makes work look. Ageing is thereby built in.
RANK_STEP = timedelta(seconds=60)


class Followers(Struct, frozen=True, kw_only=True):
    """The passes that go on with what was taken in."""

    gate: Wakeup
    relay: Wakeup
    cancels: Wakeup
    prunes: Wakeup


def work_intake(
    database: Database, broker: Broker, *, clock: Clock, followers: Followers
) -> Intake:
    """The intake of all that the scheduler tells."""

    async def handle(messages: list[Message]) -> None:
        events = [one for message in messages for one in events_in(message)]
        told = [one.data for one in events]
        pruned = [one for one in told if isinstance(one, ManifestPruned)]
        requests = [one for one in told if isinstance(one, WorkCancelRequested)]
        with span("intake", events=len(events)):
            async with database.transaction() as connection:
                await prunes.lock(connection, to_bury=bool(pruned))
                now = await clock.now(connection)
                await _apply_groups(connection, told)
                records: list[Record] = []
                await prunes.bury(connection, pruned, now, records)
                await _take_in(connection, events, now, records)
                await cancels.request(connection, requests, now, records)
                await _bring_forward(connection, told, now, records)
                await HISTORY.append(connection, records)
        followers.gate.call()
        followers.relay.call()
        if requests:
            followers.cancels.call()
        if pruned:
            followers.prunes.call()

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


async def _take_in(
    connection: Connection, events: list[Event], now: datetime, records: list[Record]
) -> None:
    queued = {one.data.work: one for one in events if isinstance(one.data, WorkQueued)}
    queued = await _without_the_buried(connection, queued, now, records)
    if not queued:
        return
    await connection.execute(works["know_groups"], [one.data.group for one in queued.values()])
    described = {work: _row(one) for work, one in queued.items()}
    rows = await connection.fetch(works["take_in"], list(described.values()), now, "queued")
    new = {row["id"] for row in rows}
    left = set(queued) - new
    if left:
        filled = await connection.fetch(works["fill_in"], [described[work] for work in left])
        new |= {row["id"] for row in filled}
        known = {row["id"] for row in await connection.fetch(works["known"], list(left))}
        PASSED_OVER.add("work_known_before", len(known - new))
        left -= known
    records += [recording.taken_in(queued[work], described[work], now) for work in new]
    if left:
        await _coalesce(connection, [queued[work] for work in left], now, records)


async def _without_the_buried(
    connection: Connection, queued: dict[Any, Event], now: datetime, records: list[Record]
) -> dict[Any, Event]:
    """Leave out work of pruned manifests, and tell whoever waits for it that it will not run.

    Work that is known already may still be running; its own end will be told.
    """
    buried = await prunes.buried(connection, [one.data.manifest_id for one in queued.values()])
    doomed = [one for one in queued.values() if one.data.manifest_id in buried]
    if not doomed:
        return queued
    rows = await connection.fetch(works["known"], [one.data.work for one in doomed])
    known = {row["id"] for row in rows}
    homeless = [one for one in doomed if one.data.work not in known]
    ends = [_end(one.data, "cancelled", settling.PRUNED, now) for one in homeless]
    await OUTBOX.add(connection, [settled_message(end, None) for end in ends])
    records += [recording.turned_away(one, "manifest_pruned", now) for one in homeless]
    return {work: one for work, one in queued.items() if one.data.manifest_id not in buried}


async def _coalesce(
    connection: Connection, events: list[Event], now: datetime, records: list[Record]
) -> None:
    described = [_row(one) for one in events]
    rows = await connection.fetch(works["take_in"], described, now, "settled")
    kept = {row["id"] for row in rows}
    why = "its manifest already had unsettled work"
    ends = []
    for one, row in zip(events, described, strict=True):
        if one.data.work in kept:
            ends.append(_end(one.data, "coalesced", why, now))
            records.append(recording.taken_in(one, row, now))
    await OUTBOX.add(connection, [settled_message(end, None) for end in ends])
    records += [recording.settled(end) for end in ends]


async def _bring_forward(
    connection: Connection, told: Sequence[Any], now: datetime, records: list[Record]
) -> None:
    ids = {one.work for one in told if isinstance(one, WorkBroughtForward)}
    if ids:
        rows = await connection.fetch(works["bring_forward"], list(ids), now)
        records += recording.brought_forward(rows, now)


def _end(work: WorkQueued, outcome: Outcome, reason: str, now: datetime) -> WorkSettled:
    """The end of work that never came to run."""
    return WorkSettled(
        work=work.work,
        round=work.round,
        manifest_id=work.manifest_id,
        manifest=work.manifest,
        group=work.group,
        outcome=outcome,
        reason=reason,
        runs=0,
        attempts=0,
        settled_at=now,
    )


def _row(queued: Event) -> dict[str, Any]:
    work: WorkQueued = queued.data
    row: dict[str, Any] = msgspec.to_builtins(work)
    row["rank"] = work.queued_at - RANK_STEP * work.priority
    row["traceparent"] = queued.traceparent
    return row
