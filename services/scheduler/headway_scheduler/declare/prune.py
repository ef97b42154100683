"""Prune manifests, together with the dispatcher.

The scheduler marks a manifest and announces that. From then on it never fires, its id is free, and
its dependents have no parent. The dispatcher waits for live runs, deletes its rows, keeps a
tombstone against late work, and confirms. Then the scheduler deletes its own rows. Healing
republishes a prune that the dispatcher does not know.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headway_postgres_kit import Connection

from headway_scheduler.declare.write import remove_empty_groups
from headway_scheduler.fire.missed import leave_parents
from headway_scheduler.fire.outbound_events import announce_pruned
from headway_scheduler.fire.tick import reschedule_wake
from headway_scheduler.store import DECLARE_LOCK, OUTBOX, audit, manifests, occurrences, works


async def mark(
    connection: Connection, ids: Sequence[UUID], *, source: str, reason: str, now: datetime
) -> list[str]:
    """Begin to delete manifests; returns their external ids.

    The lock keeps a declaration from making one of them a parent meanwhile.
    """
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    # Together with their children, in the lock order of the tick, to avoid a deadlock.
    found = await connection.fetch(manifests["lock_with_children"], ids, ids)
    locked = [row["id"] for row in found if row["id"] in set(ids)]
    if not locked:
        return []
    children = [row["id"] for row in found if row["id"] not in set(ids)]
    await leave_parents(connection, children, now=now)
    rows = await connection.fetch(manifests["mark_pruning"], locked, now, reason)
    await connection.execute(manifests["orphan_children"], locked)
    await reschedule_wake(connection, children, now=now)
    await OUTBOX.add(connection, [announce_pruned(row, now=now) for row in rows])
    entries = [(row["manifest"], {"id": str(row["manifest_id"]), "reason": reason}) for row in rows]
    await audit(connection, "headway.manifest.pruned.v1", source, entries, now=now)
    return sorted(row["manifest"] for row in rows)


async def confirm(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> None:
    """Delete manifests whose prune the dispatcher confirmed, and their empty groups."""
    if not ids:
        return
    rows = await connection.fetch(manifests["lock_pruning"], sorted(set(ids)))
    gone = [row["id"] for row in rows]
    await connection.execute(works["remove_of"], gone)
    await connection.execute(occurrences["remove_of"], gone)
    await connection.execute(occurrences["remove_timings_of"], gone)
    await connection.execute(manifests["remove"], gone)
    names = [row["group_name"] for row in rows]
    await remove_empty_groups(connection, now=now, only=names)
