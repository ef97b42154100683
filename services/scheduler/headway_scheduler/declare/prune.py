"""Manifests that go away, over two services.

The scheduler marks a manifest and tells the dispatcher. From then on it never fires, its id
is free for another, and its dependents have no parent. The dispatcher waits for live runs,
deletes what it has, remembers the manifest so that late work finds no home, and confirms;
then the scheduler deletes its own part. A prune that the dispatcher has not heard of is told
again (`standing`).
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headway_clock import new_id
from headway_history import Record
from headway_postgres_kit import Connection

from headway_scheduler.declare.group_settings import remove_empty_groups
from headway_scheduler.fire.advance import leave_parents, put_to_rest
from headway_scheduler.fire.outbound_events import announce_pruned
from headway_scheduler.store import (
    DECLARE_LOCK,
    HISTORY,
    OUTBOX,
    manifests,
    occurrences,
    works,
)


async def mark(
    connection: Connection, ids: Sequence[UUID], *, source: str, reason: str, now: datetime
) -> list[str]:
    """Begin to delete manifests; returns their external ids.

    No declaration may come in between, or a dependent could be hung on what goes.
    """
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    # Children with them and in order, as the tick does, or the two could wait for each other.
    found = await connection.fetch(manifests["lock_with_children"], ids, ids)
    locked = [row["id"] for row in found if row["id"] in set(ids)]
    if not locked:
        return []
    children = [row["id"] for row in found if row["id"] not in set(ids)]
    await leave_parents(connection, children, now=now)
    rows = await connection.fetch(manifests["mark_pruning"], locked, now, reason)
    await connection.execute(manifests["orphan_children"], locked)
    await put_to_rest(connection, children, now=now)
    await OUTBOX.add(
        connection,
        [
            announce_pruned(
                row["id"], row["external_id"], row["group_name"], reason=reason, now=now
            )
            for row in rows
        ],
    )
    await HISTORY.append(
        connection,
        [
            Record(
                event_id=str(new_id()),
                type="headway.manifest.pruned.v1",
                subject=row["external_id"],
                source=source,
                occurred_at=now,
                data={"id": str(row["id"]), "reason": reason},
            )
            for row in rows
        ],
        now=now,
    )
    return sorted(row["external_id"] for row in rows)


async def confirm(connection: Connection, ids: Sequence[UUID], *, now: datetime) -> None:
    """Delete what the dispatcher has let go: work, decisions, then the manifest; then its group."""
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
