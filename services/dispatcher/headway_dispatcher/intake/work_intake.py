"""The intake: take over what the scheduler tells: work, limits, cancels, prunes.

Work is known by its id, so a message that comes twice changes nothing, and one that is older
than settled work is kept is passed over. Work whose manifest already has unsettled work in its
slot is settled as coalesced, and work whose manifest was pruned as cancelled; it never sticks.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract import Event, subjects
from headway_contract.settled import Outcome, WorkSettled
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
from headway_relay import Handover, events_in
from headway_service_kit.after_commit import IGNORED_MESSAGES
from headway_service_kit.passes import Wakeup
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher.history import history_records
from headway_dispatcher.intake import limits, prune
from headway_dispatcher.letters import letters
from headway_dispatcher.metrics import Settled
from headway_dispatcher.operate import cancel_pass
from headway_dispatcher.outbound_events import settled_message
from headway_dispatcher.runs import settle
from headway_dispatcher.store import HISTORY, OUTBOX, REJECTED, works


class Followers(Struct, frozen=True, kw_only=True):
    """The passes that go on with what was taken in."""

    gate: Wakeup
    relay: Handover
    cancels: Wakeup
    prunes: Wakeup
    canaries: Wakeup
    consumers: Wakeup


def work_intake(
    database: Database,
    broker: Broker,
    *,
    clock: Clock,
    followers: Followers,
    rank_step: timedelta,
    kept: timedelta,
) -> Intake:
    """The intake of all that the scheduler tells.

    `rank_step` is how much older one step of priority makes work look: ageing is built in.
    `kept` is how long work is known after it was settled.
    """
    # Jobs that the pass over consumers was woken for; it looks by itself, too, only later.
    jobs_seen: set[str] = set()

    async def handle(messages: list[Message]) -> None:
        heard = [one for message in messages for one in events_in(message)]
        pruned = [one.data for one in heard if isinstance(one.data, ManifestPruned)]
        with span("intake", events=len(heard)):
            async with prune.kept_apart(database, to_bury=bool(pruned)) as connection:
                now = await clock.now(connection)
                events = _in_time(heard, now - kept)
                told = [one.data for one in events]
                requests = [one for one in told if isinstance(one, WorkCancelRequested)]
                await limits.apply(connection, told)
                records: list[Record] = []
                await prune.bury(connection, pruned, now, records)
                taken, refused = await take_in(connection, events, now, rank_step, records)
                waited_for = await cancel_pass.request(connection, requests, now, records)
                await _bring_forward(connection, told, now, records)
                await HISTORY.append(connection, records)
                await letters.resume_at_once(connection, waited_for, now=now)
        if taken or records:
            followers.gate.call(has_work=True)
        else:
            followers.gate.call()
        if refused or requests or pruned:
            followers.relay.call()
        if requests:
            followers.cancels.call()
        if pruned:
            followers.prunes.call()
        jobs = {one.job for one in told if isinstance(one, WorkQueued)} - jobs_seen
        if jobs or any(isinstance(one, JobChanged) for one in told):
            jobs_seen.update(jobs)
            followers.consumers.call()

    puller = Puller(broker, subjects.WORK_STREAM, subjects.WORK_CONSUMER)
    return REJECTED.intake(database, broker, puller, handle)


def _in_time(events: list[Event], oldest: datetime) -> list[Event]:
    """Leave out what is so old that its work may have been settled here and forgotten.

    The scheduler asks about work of which it hears nothing, and is told that it is too old.
    """
    kept = [
        one
        for one in events
        if one.time >= oldest or not isinstance(one.data, WorkQueued | WorkCancelRequested)
    ]
    IGNORED_MESSAGES.add("work_too_old", len(events) - len(kept))
    return kept


async def take_in(
    connection: Connection,
    events: list[Event],
    now: datetime,
    rank_step: timedelta,
    records: list[Record],
) -> tuple[bool, bool]:
    """Queue what is new among events.

    Tells whether some was, and whether some was not, of which somebody may have been told. What
    history is still to keep is added to `records`.
    """
    queued = {one.data.work: one for one in events if isinstance(one.data, WorkQueued)}
    if not queued:
        return False, False
    stated = {work: _row(one, rank_step) for work, one in queued.items()}
    taken = await _take(
        connection, [(queued[work], stated[work]) for work in stated], now, "queued"
    )
    left = {work: one for work, one in queued.items() if work not in taken}
    if left:
        await _see_to_the_rest(connection, left, stated, now, records)
    return bool(taken), bool(left)


async def _take(
    connection: Connection,
    stated: Sequence[tuple[Event, dict[str, Any]]],
    now: datetime,
    state: Literal["queued", "settled"],
) -> set[UUID]:
    """Take work in, with what history keeps of it; returns what was not known before."""
    records = [history_records.taken_in(one, row, now) for one, row in stated]
    rows = await connection.fetch(
        works["take_in"], [row for _, row in stated], now, state, *HISTORY.columns(records)
    )
    return {row["id"] for row in rows}


async def _see_to_the_rest(
    connection: Connection,
    queued: dict[Any, Event],
    stated: dict[Any, dict[str, Any]],
    now: datetime,
    records: list[Record],
) -> None:
    """Work that was not queued: its manifest is pruned, it is known, or its slot is taken."""
    queued = await _without_the_buried(connection, queued, now, records)
    filled = await connection.fetch(works["fill_in"], [stated[work] for work in queued])
    new = {row["id"] for row in filled}
    records += [history_records.taken_in(queued[work], stated[work], now) for work in new]
    known = {row["id"] for row in await connection.fetch(works["known"], list(queued))}
    IGNORED_MESSAGES.add("work_known_before", len(known - new))
    left = [(one, stated[work]) for work, one in queued.items() if work not in known]
    if left:
        await _coalesce(connection, left, now, records)


async def _without_the_buried(
    connection: Connection, queued: dict[Any, Event], now: datetime, records: list[Record]
) -> dict[Any, Event]:
    """Leave out work of pruned manifests, and tell whoever waits for it that it will not run.

    Work that is known already may still be running; its own end will be told.
    """
    buried = await prune.buried(connection, [one.data.manifest_id for one in queued.values()])
    doomed = [one for one in queued.values() if one.data.manifest_id in buried]
    if not doomed:
        return queued
    rows = await connection.fetch(works["known"], [one.data.work for one in doomed])
    known = {row["id"] for row in rows}
    homeless = [one for one in doomed if one.data.work not in known]
    ends = [_end(one.data, "cancelled", settle.PRUNED, now) for one in homeless]
    await OUTBOX.add(connection, [settled_message(end) for end in ends])
    records += [history_records.turned_away(one, "manifest_pruned", now) for one in homeless]
    note(*(Settled(one.data.group, one.data.job, "cancelled") for one in homeless))
    return {work: one for work, one in queued.items() if one.data.manifest_id not in buried}


async def _coalesce(
    connection: Connection,
    stated: Sequence[tuple[Event, dict[str, Any]]],
    now: datetime,
    records: list[Record],
) -> None:
    kept = await _take(connection, stated, now, "settled")
    why = "its manifest already had unsettled work"
    taken = [one.data for one, _ in stated if one.data.work in kept]
    ends = [_end(one, "coalesced", why, now) for one in taken]
    await OUTBOX.add(connection, [settled_message(end) for end in ends])
    records += [history_records.settled(end) for end in ends]
    note(*(Settled(one.group, one.job, "coalesced") for one in taken))


async def _bring_forward(
    connection: Connection, told: Sequence[Any], now: datetime, records: list[Record]
) -> None:
    ids = {one.work for one in told if isinstance(one, WorkBroughtForward)}
    if ids:
        rows = await connection.fetch(works["bring_forward"], list(ids), now)
        records += history_records.brought_forward(rows, now)


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


def _row(queued: Event, rank_step: timedelta) -> dict[str, Any]:
    work: WorkQueued = queued.data
    row: dict[str, Any] = msgspec.to_builtins(work)
    row["rank"] = work.queued_at - rank_step * work.priority
    row["traceparent"] = queued.traceparent
    return row
