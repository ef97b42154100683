"""Apply definitions at start-up: declare them, then prune undeclared manifests."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime

from headway.define.definitions import API_OWNER, Definitions
from headway_contract.definitions import ApplyAnswer, PrunePolicy
from headway_decisions.declaring.app_sources import Source
from headway_decisions.firing import manifest_state
from headway_postgres_kit import Connection, Database, DatabaseUnavailable
from headway_tracing.log import get_logger
from msgspec import structs

from headway_scheduler.declare import prune
from headway_scheduler.declare.checks import retired_use_warnings
from headway_scheduler.declare.compare import Known
from headway_scheduler.declare.declare import declare
from headway_scheduler.declare.write import remove_empty_groups
from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.outbound_events import announce_switches
from headway_scheduler.fire.tick import reschedule_wake
from headway_scheduler.store import DECLARE_LOCK, applications, audit, lock_manifests, manifests

log = get_logger(__name__)

_RETRIES = 5
_FIRST_PAUSE = 2.0
_OVERTAKEN = "another start has declared meanwhile, and prunes instead of this one"


async def apply(
    database: Database,
    definitions: Definitions,
    *,
    policy: PrunePolicy,
    source: str | None = None,
    declares: Source = "code",
    take_over: bool = False,
    may_fire: bool = True,
) -> ApplyAnswer:
    """Declare in one transaction; then prune batches and orphans, each in its own."""
    source = source or f"app/{definitions.owner}"
    declared = await declare(
        database,
        definitions,
        source=source,
        declares=declares,
        take_over=take_over,
        may_fire=may_fire,
    )
    if declared.answer.stale:
        return declared.answer
    batches, orphans = leaving(definitions, declared.gone)
    cleaning = _Cleaning(database, definitions.owner, source, declared.at)
    pruned, disabled = [], []
    for batch, members in batches.items():
        pruned += await cleaning.prune(members, f"left the batch {batch}")
    if policy == "delete":
        pruned += await cleaning.prune(orphans, "no longer declared")
    else:
        disabled = await cleaning.keep(orphans, silence=policy == "disable")
    warnings = [*declared.answer.warnings, *cleaning.warnings]
    if definitions.owner != API_OWNER:
        await cleaning.remove_empty_groups([group.name for group in definitions.groups])
        async with database.acquire() as connection:
            uses = await connection.fetch(manifests["use_retired_jobs"], definitions.owner)
        warnings += retired_use_warnings(uses)
    return structs.replace(
        declared.answer, pruned=sorted(pruned), disabled=disabled, warnings=warnings
    )


async def apply_at_start(
    database: Database, definitions: Definitions, *, policy: PrunePolicy, may_fire: bool
) -> ApplyAnswer:
    """Apply the application's definitions; retries five times while the database is unavailable."""
    pause = _FIRST_PAUSE
    for retries_left in range(_RETRIES, -1, -1):
        try:
            applied = await apply(database, definitions, policy=policy, may_fire=may_fire)
            break
        except DatabaseUnavailable as error:
            if not retries_left:
                raise
            log.warning("declaration failed; retrying", error=error, retry_seconds=pause)
            await asyncio.sleep(pause)
            pause *= 2
    if not applied.stale:
        log.info(
            "definitions declared",
            app=definitions.owner,
            manifests=len(definitions.manifests),
            created=len(applied.created),
            changed=len(applied.changed),
            moved=len(applied.moved),
            pruned=len(applied.pruned),
            disabled=len(applied.disabled),
        )
    for warning in applied.warnings:
        log.warning("declaration warning", app=definitions.owner, warning=warning)
    return applied


def leaving(
    definitions: Definitions, gone: Sequence[Known]
) -> tuple[dict[str, list[Known]], list[Known]]:
    """Return undeclared manifests: those of batches that prune, and orphans.

    A batch that does not prune keeps the manifests that left it.
    """
    pruning = {batch.name: batch.prune for batch in definitions.batches}
    batches: dict[str, list[Known]] = {name: [] for name, prunes in pruning.items() if prunes}
    orphans = []
    for manifest in gone:
        if manifest.batch in batches:
            batches[manifest.batch].append(manifest)
        elif manifest.batch not in pruning and definitions.owner != API_OWNER:
            orphans.append(manifest)
    return {name: left for name, left in batches.items() if left}, orphans


class _Overtaken(Exception):
    """Another start has declared meanwhile, and prunes instead of this one."""


@dataclass(frozen=True)
class _Cleaning:
    """The steps after a declaration, each in a transaction of its own; collects warnings."""

    database: Database
    owner: str
    source: str
    declared_at: datetime
    warnings: list[str] = field(default_factory=list)

    async def prune(self, left: Sequence[Known], reason: str) -> list[str]:
        """Delete undeclared manifests; a failure becomes a warning and rolls nothing else back."""
        if not left:
            return []
        ids = [manifest.id for manifest in left]
        try:
            async with self._step() as (connection, now):
                return await prune.mark(connection, ids, source=self.source, reason=reason, now=now)
        except _Overtaken:
            self.warnings.append(_OVERTAKEN)
        except Exception as error:
            log.exception("prune failed", reason=reason)
            self.warnings.append(
                f"pruning manifests ({reason}) failed; the next start tries again: {error}"
            )
        return []

    async def keep(self, left: Sequence[Known], *, silence: bool) -> list[str]:
        """Keep undeclared manifests; with `silence` disable them, and return those."""
        if not left:
            return []
        try:
            async with self._step() as (connection, now):
                locked = await lock_manifests(connection, [manifest.id for manifest in left])
                if silence:
                    # Times that came due before were missed; being undeclared is not their reason.
                    await skip_missed_during_pause(
                        connection, locked, now=now, otherwise=manifest_state.MISSED
                    )
                rows = await connection.fetch(manifests["undeclare"], locked, now, silence)
                if silence:
                    await reschedule_wake(connection, locked, now=now)
                await announce_switches(connection, locked, now=now)
                undeclared = sorted(row["external_id"] for row in rows)
                kind = "headway.manifest.undeclared.v1"
                entries = [(name, {"disabled": silence}) for name in undeclared]
                await audit(connection, kind, self.source, entries, now=now)
            return undeclared if silence else []
        except _Overtaken:
            self.warnings.append(_OVERTAKEN)
            return []

    async def remove_empty_groups(self, stated: Sequence[str]) -> None:
        """Delete groups without manifests."""
        with suppress(_Overtaken):
            async with self._step() as (connection, now):
                await remove_empty_groups(connection, now=now, owner=self.owner, stated=stated)

    @asynccontextmanager
    async def _step(self) -> AsyncIterator[tuple[Connection, datetime]]:
        """Open a transaction with the declaration lock; raises if another start declared."""
        async with self.database.transaction() as connection:
            await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
            if self.owner != API_OWNER and not await connection.fetchval(
                applications["declared_last"], self.owner, self.declared_at
            ):
                raise _Overtaken
            yield connection, await self.database.clock.now(connection)
