"""Republish lost messages: the same events, under new message ids.

Work is rebuilt from its decision and its manifest. The decision keeps its own input, if any, and
the priority and expiry of a trigger. Everything else (job, group, key, retries, timeouts) comes
from the manifest as it is now, as for any work that has not run yet.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from headway_clock import new_id
from headway_contract.work_queue import NamedWork
from headway_decisions.capacity.keys import InvalidKey
from headway_postgres_kit import Connection
from headway_relay import OutboxMessage
from headway_tracing.log import get_logger
from msgspec import structs

from headway_scheduler.fire import decide, outbound_events
from headway_scheduler.operate.enqueue import republish_enqueued
from headway_scheduler.store import OUTBOX, SOURCE, audit, groups, heals, manifests, works

log = get_logger(__name__)

_TOGETHER = UUID(int=0)
# The values of a decision that its work keeps.
_KEPT = (
    *("cause", "first_due_at", "last_due_at", "work", "slot", "explicit", "not_before"),
    *("priority", "start_within_seconds", "traceparent"),
)

# The queries of the settings of each kind, and the function that announces a row.
_SETTINGS: dict[str, tuple[tuple[str, ...], Callable[..., OutboxMessage]]] = {
    "group": ((groups["read"], groups["deleted"]), outbound_events.announce_group),
    "job": ((manifests["job_limits"],), outbound_events.announce_job),
    "manifest": ((heals["switches"],), outbound_events.announce_switch),
}


async def republish_work(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Republish work that is still outstanding, or its cancellation; returns how many."""
    # The dispatcher records unknown work as cancelled when it receives the cancellation.
    cancelled = await republish_cancels(connection, ids, now=now)
    ids = [work for work in ids if work not in cancelled]
    rows = await connection.fetch(heals["lost"], sorted(ids))
    found = await decide.read_manifests(connection, {row["manifest_id"] for row in rows}, now=now)
    by_id = {each.view.id: each for each in found if isinstance(each, decide.Manifest)}
    decisions = {
        row["work"]: (by_id[row["manifest_id"]], decision)
        for row in rows
        if (decision := _decision(by_id.get(row["manifest_id"]), row)) is not None
    }
    known = [row for row in rows if row["work"] in decisions]
    for (queued_at, _), members in groupby(sorted(known, key=_message_of), key=_message_of):
        # With its old time: work that waited before the loss does not wait from the beginning.
        pairs = [decide.queued_work(*decisions[row["work"]], now=queued_at) for row in members]
        await _add(connection, decide.announce_work(pairs, now=queued_at))
    republished = [row["work"] for row in known]
    republished += await _republish_enqueued(connection, ids, now)
    await _count_attempts(connection, [*republished, *cancelled], now)
    return len(republished) + len(cancelled)


def _message_of(row: Any) -> tuple[datetime, UUID]:
    """Return the key by which work shares a message.

    Work that was republished in vain travels alone: another event of its message may be at fault.
    """
    return row["queued_at"], row["work"] if row["republish_count"] else _TOGETHER


def _decision(manifest: decide.Manifest | None, row: Any) -> decide.LedgerRow | None:
    """Return the decision of lost work; `None` if it cannot be republished yet.

    That is so if its manifest cannot be read, or gives no key: without its key it could run beside
    work that it must not run beside.
    """
    if manifest is None:
        return None
    own_input = row["has_input"] or row["input"] is not None
    work_input = row["input"] if own_input else manifest.input
    try:
        key = decide.key_of(manifest, work_input)
    except InvalidKey as error:
        log.error("lost work cannot be republished", work=row["work"], error=error)
        return None
    return decide.LedgerRow(
        manifest=row["manifest_id"],
        decision="queued",
        input=work_input,
        concurrency_key=key,
        **{name: row[name] for name in _KEPT},
    )


async def _republish_enqueued(
    connection: Connection, ids: Sequence[UUID], now: datetime
) -> list[UUID]:
    """Republish enqueued work, whose row is kept until it is settled."""
    rows = await connection.fetch(heals["without_manifest"], list(ids))
    in_vain = [row["id"] for row in rows if row["republish_count"]]
    others = [row["id"] for row in rows if not row["republish_count"]]
    for message in filter(None, [others, *([work] for work in in_vain)]):
        await _add(connection, await republish_enqueued(connection, message, now=now))
    return others + in_vain


async def _count_attempts(connection: Connection, ids: Sequence[UUID], now: datetime) -> None:
    """Count how often work was republished, and report work for which that does not help."""
    rows = await connection.fetch(heals["republished"], sorted(ids), now)
    in_vain = {row["id"]: row["republish_count"] for row in rows if row["republish_count"] > 1}
    for work, times in in_vain.items():
        remedy = "see the table dispatcher.rejected"
        log.warning("republished work stays unknown", work=work, times=times, remedy=remedy)
    entries = [(str(work), {"told_again": times}) for work, times in in_vain.items()]
    await audit(connection, "headway.work.told_in_vain.v1", SOURCE, entries, now=now)


async def republish_cancels(
    connection: Connection, ids: Sequence[UUID], *, now: datetime
) -> set[UUID]:
    """Republish the cancellations among outstanding work; returns the cancelled work."""
    rows = await connection.fetch(heals["to_cancel"], sorted(ids))
    messages = []
    for row in rows:
        fields = dict(row)
        reason = fields.pop("reason")
        messages.append(
            outbound_events.announce_cancel(NamedWork(**fields).cancel_requested(reason, now))
        )
    await _add(connection, messages)
    cancelled = [row["work"] for row in rows]
    await connection.execute(works["note_cancel"], cancelled, "", now)
    return set(cancelled)


async def republish_forward(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Republish requests that work goes first."""
    rows = await connection.fetch(heals["to_bring_forward"], sorted(ids))
    for row in rows:
        message = outbound_events.announce_brought_forward(
            row["id"], group=row["group_name"], now=now
        )
        await _add(connection, [message])
        await connection.execute(works["note_forward"], row["id"], now)
    return len(rows)


async def republish_settings(
    connection: Connection, kind: str, names: Sequence[str], *, now: datetime
) -> int:
    """Republish the settings of groups, deletions of groups, limits of jobs, or switches."""
    queries, announce = _SETTINGS[kind]
    rows = [row for query in queries for row in await connection.fetch(query, sorted(names))]
    return await _add(connection, [announce(row, now=now) for row in rows])


async def republish_prunes(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> int:
    """Republish prunes that are not confirmed."""
    rows = await connection.fetch(heals["prunes_republished"], sorted(ids), now)
    return await _add(connection, [outbound_events.announce_pruned(row, now=now) for row in rows])


async def _add(connection: Connection, messages: Sequence[OutboxMessage]) -> int:
    """Add messages under new ids: a broker that lost a message may still know its id."""
    renamed = [
        structs.replace(message, message_id=f"{message.message_id}.{new_id()}")
        for message in messages
    ]
    await OUTBOX.add(connection, renamed)
    return len(renamed)
