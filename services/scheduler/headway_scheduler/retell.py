"""Telling again what was lost: the same events, under message ids that nobody has seen.

A piece of work is rebuilt from its decision and its manifest. The decision keeps the input
that it was made with, if there is one; everything else (job, group, priority, retries,
timeouts) is what the manifest says now, for that is what anybody would expect of work that
has not run yet.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from headway_clock import new_id
from headway_postgres_kit import Connection
from headway_relay import OutboxMessage
from msgspec import structs

from headway_scheduler.announce import (
    announce_group,
    announce_job,
    announce_pruned,
    announce_switch,
    announce_work,
)
from headway_scheduler.declare import group_changed, job_changed, manifest_changed
from headway_scheduler.enqueue import announce_again
from headway_scheduler.ledger import LedgerRow
from headway_scheduler.manifest import Manifest, read_manifests
from headway_scheduler.store import OUTBOX, groups, heals, manifests


async def retell_work(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Announce work again that is still outstanding; returns how much of it there was."""
    rows = await connection.fetch(heals["lost"], sorted(ids))
    found = await read_manifests(connection, {row["manifest_id"] for row in rows}, now=now)
    by_id = {one.view.id: one for one in found if isinstance(one, Manifest)}
    pairs = [
        (row["queued_at"], by_id[row["manifest_id"]], row)
        for row in rows
        if row["manifest_id"] in by_id
    ]
    pairs.sort(key=lambda pair: pair[0])
    for queued_at, members in groupby(pairs, key=lambda pair: pair[0]):
        # As old as it was: what waited before the loss does not wait from the beginning.
        messages = announce_work(
            [(manifest, _decision(manifest, row)) for _, manifest, row in members], now=queued_at
        )
        await OUTBOX.add(connection, _afresh(messages))
    told = [row["id"] for _, _, row in pairs] + await _retell_enqueued(connection, ids, now)
    await connection.execute(heals["told_again"], told, now)
    return len(told)


async def _retell_enqueued(
    connection: Connection, ids: Sequence[UUID], now: datetime
) -> list[UUID]:
    """The same for work that no manifest made: what was enqueued is kept until it is settled."""
    rows = await connection.fetch(heals["without_manifest"], list(ids))
    enqueued = [row["id"] for row in rows]
    if enqueued:
        messages = await announce_again(connection, enqueued, now=now)
        await OUTBOX.add(connection, _afresh(messages))
    return enqueued


async def retell_groups(connection: Connection, names: Sequence[str], *, now: datetime) -> int:
    """Announce the settings of groups again."""
    rows = await connection.fetch(groups["read"], sorted(names))
    messages = [announce_group(group_changed(row), now=now) for row in rows]
    await OUTBOX.add(connection, _afresh(messages))
    return len(rows)


async def retell_jobs(connection: Connection, names: Sequence[str], *, now: datetime) -> int:
    """Announce the limits of jobs again."""
    rows = await connection.fetch(manifests["job_limits"], list(names))
    messages = [announce_job(job_changed(row), now=now) for row in rows]
    await OUTBOX.add(connection, _afresh(messages))
    return len(rows)


async def retell_switches(connection: Connection, ids: Sequence[str], *, now: datetime) -> int:
    """Announce again which manifests are disabled, or enabled again."""
    rows = await connection.fetch(heals["switches"], [UUID(one) for one in ids])
    messages = [announce_switch(manifest_changed(row), now=now) for row in rows]
    await OUTBOX.add(connection, _afresh(messages))
    return len(rows)


async def retell_prunes(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Announce again that manifests go away."""
    rows = await connection.fetch(heals["told_pruning"], sorted(ids), now)
    messages = [
        announce_pruned(row["id"], row["external_id"], row["group_name"], reason="again", now=now)
        for row in rows
    ]
    await OUTBOX.add(connection, _afresh(messages))
    return len(rows)


def _decision(manifest: Manifest, row: Any) -> LedgerRow:
    own = row["has_input"] or row["input"] is not None
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
        input=row["input"] if own else manifest.input,
        not_before=row["not_before"],
    )


def _afresh(messages: Iterable[OutboxMessage]) -> list[OutboxMessage]:
    """Messages under new ids: a broker that lost the message may still know its id."""
    return [
        structs.replace(message, message_id=f"{message.message_id}.{new_id()}")
        for message in messages
    ]
