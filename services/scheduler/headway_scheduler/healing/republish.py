"""Telling again what was lost: the same events, under message ids that nobody has seen.

A piece of work is rebuilt from its decision and its manifest. The decision keeps the input
that it was made with, if there is one, and what a trigger stated of priority and expiry;
everything else (job, group, key, retries, timeouts) is what the manifest says now, for that is
what anybody would expect of work that has not run yet.
"""

import logging
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from headway_clock import new_id
from headway_contract.work import WorkCancelRequested
from headway_decisions.capacity.keys import InvalidKey
from headway_postgres_kit import Connection
from headway_relay import OutboxMessage
from msgspec import structs

from headway_scheduler.fire.manifest import LedgerRow, Manifest, key_of, read_manifests
from headway_scheduler.fire.outbound_events import (
    announce_brought_forward,
    announce_cancel,
    announce_group,
    announce_job,
    announce_pruned,
    announce_switch,
    announce_work,
)
from headway_scheduler.operate.enqueue import republish_enqueued
from headway_scheduler.store import HISTORY, OUTBOX, SOURCE, audit, groups, heals, manifests, works

logger = logging.getLogger(__name__)

_TOGETHER = UUID(int=0)


async def republish_work(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Announce work again that is still outstanding; returns how much of it there was."""
    cancelled = await _tell_cancels(connection, ids, now)
    ids = [one for one in ids if one not in cancelled]
    rows = await connection.fetch(heals["lost"], sorted(ids))
    found = await read_manifests(connection, {row["manifest_id"] for row in rows}, now=now)
    by_id = {one.view.id: one for one in found if isinstance(one, Manifest)}
    decisions = {
        row["id"]: decision
        for row in rows
        if (decision := _decision(by_id.get(row["manifest_id"]), row)) is not None
    }
    known = [row for row in rows if row["id"] in decisions]
    for (queued_at, *_), members in groupby(sorted(known, key=_together), key=_together):
        # As old as it was: what waited before the loss does not wait from the beginning.
        pairs = [(by_id[row["manifest_id"]], decisions[row["id"]]) for row in members]
        await OUTBOX.add(connection, _afresh(announce_work(pairs, now=queued_at)))
    told = [row["id"] for row in known] + await _republish_enqueued(connection, ids, now)
    await _note_told(connection, [*told, *cancelled], now)
    return len(told) + len(cancelled)


def _together(row: Any) -> tuple[datetime, UUID]:
    """What is told in one message. What was told in vain travels alone: another may be at fault."""
    return row["queued_at"], row["id"] if row["republish_count"] else _TOGETHER


async def _note_told(connection: Connection, ids: Sequence[UUID], now: datetime) -> None:
    """Count how often work was told again, and say so where that does not help."""
    rows = await connection.fetch(heals["told_again"], sorted(ids), now)
    in_vain = {row["id"]: row["republish_count"] for row in rows if row["republish_count"] > 1}
    for work, times in in_vain.items():
        logger.warning(
            "work %s was told %d times and is still not known: see dispatcher.rejected", work, times
        )
    records = [
        audit("headway.work.told_in_vain.v1", str(work), SOURCE, {"told_again": times}, now)
        for work, times in in_vain.items()
    ]
    await HISTORY.append(connection, records, now=now)


async def republish_cancels(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Ask again for outstanding work to end early."""
    return len(await _tell_cancels(connection, ids, now))


async def _tell_cancels(connection: Connection, ids: Sequence[UUID], now: datetime) -> set[UUID]:
    """Ask again for those to end whose end was asked for; returns them.

    Work that never came is not told any more: the dispatcher writes it down as cancelled.
    """
    rows = await connection.fetch(heals["to_cancel"], sorted(ids))
    messages = [
        announce_cancel(
            WorkCancelRequested(
                work=row["id"],
                round=row["round"],
                manifest_id=row["manifest_id"],
                manifest=row["external_id"],
                group=row["group_name"],
                reason=row["reason"],
                requested_at=now,
            )
        )
        for row in rows
    ]
    await OUTBOX.add(connection, _afresh(messages))
    told = [row["id"] for row in rows]
    await connection.execute(works["note_cancel"], told, "", now)
    return set(told)


async def republish_forward(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Ask again for work to come first."""
    rows = await connection.fetch(heals["to_bring_forward"], sorted(ids))
    for row in rows:
        message = announce_brought_forward(row["id"], group=row["group_name"], now=now)
        await OUTBOX.add(connection, _afresh([message]))
        await connection.execute(works["note_forward"], row["id"], now)
    return len(rows)


async def _republish_enqueued(
    connection: Connection, ids: Sequence[UUID], now: datetime
) -> list[UUID]:
    """The same for work that no manifest made: what was enqueued is kept until it is settled."""
    rows = await connection.fetch(heals["without_manifest"], list(ids))
    in_vain = [row["id"] for row in rows if row["republish_count"]]
    others = [row["id"] for row in rows if not row["republish_count"]]
    for together in ([others] if others else []) + [[one] for one in in_vain]:
        messages = await republish_enqueued(connection, together, now=now)
        await OUTBOX.add(connection, _afresh(messages))
    return others + in_vain


async def republish_groups(connection: Connection, names: Sequence[str], *, now: datetime) -> int:
    """Announce the settings of groups again, and the deletion of those that are gone."""
    rows = await connection.fetch(groups["read"], sorted(names))
    gone = await connection.fetch(groups["deleted"], sorted(names))
    messages = [announce_group(row, now=now) for row in rows]
    messages += [announce_group(row, now=now, deleted=True) for row in gone]
    await OUTBOX.add(connection, _afresh(messages))
    return len(messages)


async def republish_jobs(connection: Connection, names: Sequence[str], *, now: datetime) -> int:
    """Announce the limits of jobs again."""
    rows = await connection.fetch(manifests["job_limits"], list(names))
    messages = [announce_job(row, now=now) for row in rows]
    await OUTBOX.add(connection, _afresh(messages))
    return len(rows)


async def republish_switches(connection: Connection, ids: Sequence[str], *, now: datetime) -> int:
    """Announce again which manifests are disabled, or enabled again."""
    rows = await connection.fetch(heals["switches"], [UUID(one) for one in ids])
    messages = [announce_switch(row, now=now) for row in rows]
    await OUTBOX.add(connection, _afresh(messages))
    return len(rows)


async def republish_prunes(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Announce again that manifests go away."""
    rows = await connection.fetch(heals["told_pruning"], sorted(ids), now)
    messages = [announce_pruned(row, reason=row["reason"], now=now) for row in rows]
    await OUTBOX.add(connection, _afresh(messages))
    return len(rows)


def _decision(manifest: Manifest | None, row: Any) -> LedgerRow | None:
    """The decision that made lost work; none if its manifest cannot be read, or makes no key now.

    Without the key it would run beside work that it must not run beside, so it waits.
    """
    if manifest is None:
        return None
    own = row["has_input"] or row["input"] is not None
    given = row["input"] if own else manifest.input
    try:
        key = key_of(manifest, given)
    except InvalidKey as error:
        logger.error("work %s was lost and cannot be told again: %s", row["id"], error)
        return None
    return LedgerRow(
        manifest=row["manifest_id"],
        cause=row["cause"],
        first_due_at=row["first_due_at"],
        last_due_at=row["last_due_at"],
        decision="queued",
        work=row["id"],
        slot=row["slot"],
        actor=row["actor"],
        explicit=row["explicit"],
        has_input=own,
        input=given,
        not_before=row["not_before"],
        priority=row["priority"],
        start_within_seconds=row["start_within_seconds"],
        concurrency_key=key,
        traceparent=row["traceparent"],
    )


def _afresh(messages: Iterable[OutboxMessage]) -> list[OutboxMessage]:
    """Messages under new ids: a broker that lost the message may still know its id."""
    return [
        structs.replace(message, message_id=f"{message.message_id}.{new_id()}")
        for message in messages
    ]
