"""Prunes: delete a manifest with all its rows.

The tombstone comes first, and from then on no work of the manifest is queued. Waiting work is
settled as cancelled; live runs may finish, but are not retried. Once nothing of the manifest is
live, its rows are deleted in batches and the scheduler gets a confirmation. Tombstones and
history stay.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from headway_contract.settled import PruneConfirmed
from headway_contract.work import ManifestPruned
from headway_postgres_kit import Connection, Database
from headway_service_kit.passes import Wakeup
from headway_tracing import span
from headway_tracing.log import get_logger

from headway_dispatcher.events import prune_confirmed_message, prune_record
from headway_dispatcher.runs import settle
from headway_dispatcher.runs.settle import Changes
from headway_dispatcher.store import HISTORY, OUTBOX, prune_queries, works

log = get_logger(__name__)

# Leases, letters or work in one transaction; a lease has a run and a few inbox rows.
BATCH = 1000
_MANIFESTS_AT_ONCE = 20


async def write_tombstones(
    connection: Connection, pruned: Sequence[ManifestPruned], now: datetime, changes: Changes
) -> None:
    """Write tombstones and settle waiting work; confirm again what was already deleted."""
    by_manifest = {prune.manifest_id: prune for prune in pruned}
    if not by_manifest:
        return
    prunes = list(by_manifest.values())
    rows = await connection.fetch(prune_queries["write_tombstones"], prunes, now)
    changes.records += [prune_record(by_manifest[row["manifest_id"]], now) for row in rows]
    rows = await connection.fetch(prune_queries["confirmed"], list(by_manifest))
    confirmed = msgspec.convert([dict(row) for row in rows], list[PruneConfirmed])
    await OUTBOX.add(connection, [prune_confirmed_message(each) for each in confirmed])
    await settle_waiting(connection, now, changes)


async def settle_waiting(connection: Connection, now: datetime, changes: Changes) -> int:
    """Settle a batch of waiting work of pruned manifests; returns its size."""
    found = await connection.fetch(prune_queries["waiting"], BATCH)
    if not found:
        return 0
    rows = await connection.fetch(works["lock"], sorted(row["id"] for row in found))
    waiting = [(row, settle.PRUNED) for row in rows if row["state"] in ("queued", "waiting")]
    await settle.cancel(connection, waiting, now=now, changes=changes)
    return len(found)


async def prune_manifests(database: Database, relay: Wakeup) -> float | None:
    """Delete one batch of the rows of each pruned manifest that has nothing live."""
    async with database.transaction() as connection:
        changes = Changes()
        now = await database.clock.now(connection)
        settled = await settle_waiting(connection, now, changes)
        await changes.write(connection, now=now)
        ready = await connection.fetch(prune_queries["ready"], _MANIFESTS_AT_ONCE)
    done = [await _delete_batch(database, row["manifest_id"]) for row in ready]
    if settled or ready:
        relay.call()
    unfinished = settled == BATCH or len(ready) == _MANIFESTS_AT_ONCE or not all(done)
    return 0.0 if unfinished else None


async def _delete_batch(database: Database, manifest: UUID) -> bool:
    """Delete one batch; true once nothing is left, or another dispatcher deletes it."""
    with span("prune", manifest=str(manifest)):
        async with database.transaction() as connection:
            tombstone = await connection.fetchrow(prune_queries["lock"], manifest)
            if tombstone is None:
                return True
            if await _delete_some(connection, manifest):
                return False
            now = await database.clock.now(connection)
            [row] = await connection.fetch(prune_queries["confirm"], manifest, now)
            confirmed = msgspec.convert(dict(row), PruneConfirmed)
            await OUTBOX.add(connection, [prune_confirmed_message(confirmed)])
            await HISTORY.append(connection, [prune_record(confirmed, confirmed.confirmed_at)])
    log.info("manifest pruned", manifest=tombstone["manifest"])
    return True


async def _delete_some(connection: Connection, manifest: UUID) -> bool:
    """Delete runs and leases first, then the rows they refer to; true if more may be left."""
    # Same lock order as the projector, to avoid a deadlock.
    rows = await connection.fetch(prune_queries["lock_leases"], manifest, BATCH)
    if rows:
        held = [row["id"] for row in rows]
        await connection.execute(prune_queries["delete_runs"], held, manifest)
        gone = await connection.fetch(prune_queries["delete_leases"], held)
        await connection.execute(prune_queries["delete_inbox"], [row["id"] for row in gone])
        return True
    for query in (prune_queries["delete_dead_letters"], prune_queries["delete_work"]):
        if await connection.fetchval(query, manifest, BATCH) == BATCH:
            return True
    return False
