"""Prunes: manifests that go away with all that belongs to them.

A tombstone is written first, and from then on no work of the manifest is taken in. What
waits is settled as cancelled; what runs may finish, but is not tried again. Once nothing
of it is live, its rows are deleted a batch at a time and the scheduler is told. Tombstones
stay for good, and so does history.
"""

import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract.settled import PruneConfirmed
from headway_contract.work import ManifestPruned
from headway_history import Record
from headway_postgres_kit import Clock, Connection, Database
from headway_service_kit.passes import Wakeup
from headway_tracing import span

from headway_dispatcher.history import history_records
from headway_dispatcher.outbound_events import prune_confirmed_message
from headway_dispatcher.runs import settle
from headway_dispatcher.store import BURY_LOCK, HISTORY, OUTBOX, prune_queries, works

logger = logging.getLogger(__name__)

# Leases, letters or work in one transaction; a lease has a run and a few rows of inbox.
BATCH = 1000
_MANIFESTS_AT_ONCE = 20


def kept_apart(database: Database, *, to_bury: bool) -> AbstractAsyncContextManager[Connection]:
    """A transaction that keeps new tombstones and new work apart, before either is looked at.

    Whoever takes work in shares the lock, whoever buries has it alone. Otherwise work could be
    taken in by one dispatcher while another, which does not see it yet, deletes all the rest.
    """
    return database.locked_transaction(BURY_LOCK, shared=not to_bury)


async def lock(connection: Connection) -> None:
    """The same for whoever brings work back in a transaction that needs savepoints."""
    await connection.execute(prune_queries["share_lock"], BURY_LOCK)


async def bury(
    connection: Connection,
    pruned: Sequence[ManifestPruned],
    now: datetime,
    records: list[Record],
) -> None:
    """Write tombstones and settle what waits; what was deleted before is confirmed again."""
    told = {one.manifest_id: one for one in pruned}
    if not told:
        return
    rows = await connection.fetch(
        prune_queries["bury"],
        list(told),
        [one.manifest for one in told.values()],
        [one.group for one in told.values()],
        [one.reason for one in told.values()],
        now,
    )
    records += [history_records.pruned(told[row["manifest_id"]], now) for row in rows]
    confirmed = await connection.fetch(prune_queries["confirmed"], list(told))
    await OUTBOX.add(connection, [prune_confirmed_message(confirmation(row)) for row in confirmed])
    await settle_waiting(connection, now, records)


async def buried(connection: Connection, manifests: Iterable[UUID | None]) -> set[UUID]:
    """Which of these manifests have a tombstone."""
    asked = {manifest for manifest in manifests if manifest is not None}
    if not asked:
        return set()
    rows = await connection.fetch(prune_queries["buried"], list(asked))
    return {row["manifest_id"] for row in rows}


async def settle_waiting(connection: Connection, now: datetime, records: list[Record]) -> int:
    """Settle work of buried manifests that waits; returns how much of it there was."""
    found = await connection.fetch(prune_queries["waiting"], BATCH)
    if not found:
        return 0
    rows = await connection.fetch(works["lock"], sorted(row["id"] for row in found))
    waiting = [(row, settle.PRUNED) for row in rows if row["state"] in ("queued", "waiting")]
    await settle.cancel(connection, waiting, now=now, records=records)
    return len(found)


class Prunes:
    """Deletes what belongs to buried manifests, for one dispatcher process."""

    def __init__(self, database: Database, *, clock: Clock, relay: Wakeup) -> None:
        self._database = database
        self._clock = clock
        self._relay = relay

    async def run_once(self) -> float | None:
        """One batch of each manifest of which nothing is live; rests only when all is done."""
        async with self._database.transaction() as connection:
            records: list[Record] = []
            now = await self._clock.now(connection)
            settled = await settle_waiting(connection, now, records)
            await HISTORY.append(connection, records)
            ready = await connection.fetch(prune_queries["ready"], _MANIFESTS_AT_ONCE)
        done = [await self._delete_batch(row["manifest_id"]) for row in ready]
        if settled or ready:
            self._relay.call()
        unfinished = settled == BATCH or len(ready) == _MANIFESTS_AT_ONCE or not all(done)
        return 0.0 if unfinished else None

    async def _delete_batch(self, manifest: UUID) -> bool:
        """Delete one batch; true once nothing is left, or somebody else is at it."""
        with span("prune", manifest=str(manifest)):
            async with self._database.transaction() as connection:
                tombstone = await connection.fetchrow(prune_queries["take"], manifest)
                if tombstone is None:
                    return True
                if await _delete_some(connection, manifest):
                    return False
                now = await self._clock.now(connection)
                row = await connection.fetchrow(prune_queries["confirm"], manifest, now)
                confirmed = confirmation(row)
                await OUTBOX.add(connection, [prune_confirmed_message(confirmed)])
                await HISTORY.append(connection, [history_records.prune_confirmed(confirmed)])
        logger.info("manifest %s is pruned: nothing of it is left", tombstone["manifest"])
        return True


async def _delete_some(connection: Connection, manifest: UUID) -> bool:
    """Runs and their leases first, then what they refer to; true if there may be more."""
    # Locked before anything is deleted, as the projector does, so that the two never embrace.
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


def confirmation(tombstone: Any) -> PruneConfirmed:
    """That nothing is left of a manifest, as its tombstone has it."""
    return PruneConfirmed(
        manifest_id=tombstone["manifest_id"],
        manifest=tombstone["manifest"],
        group=tombstone["group_name"],
        confirmed_at=tombstone["confirmed_at"],
    )
