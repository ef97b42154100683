"""Start-up: seed, then prune what is no longer declared, once, before the first tick."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from headway.define.definitions import API_OWNER, Definitions
from headway_contract.scheduling import PrunePolicy
from headway_decisions.declaring.app_sources import Source
from headway_decisions.firing import manifest_state
from headway_postgres_kit import Clock, Connection, Database, DatabaseUnavailable
from msgspec import Struct, structs

from headway_scheduler.declare import prune
from headway_scheduler.declare.declare import Declared, Known, audit, declare, tell_switches
from headway_scheduler.declare.group_settings import remove_empty_groups
from headway_scheduler.declare.retired_jobs import warnings_of_use
from headway_scheduler.fire.advance import account_for, put_to_rest
from headway_scheduler.store import (
    DECLARE_LOCK,
    HISTORY,
    applications,
    lock_manifests,
    manifests,
)

logger = logging.getLogger(__name__)

_RETRIES = 5
_FIRST_PAUSE = 2.0


class Applied(Struct, frozen=True, kw_only=True):
    """What applying definitions came to.

    `warnings` tell what failed and will be tried again, and what will never fire.
    """

    declared: Declared
    pruned: list[str] = []
    disabled: list[str] = []
    warnings: list[str] = []


class Leavers(Struct, frozen=True, kw_only=True):
    """What is no longer declared: by the batch that pruned it, and the orphans of all others."""

    batches: dict[str, list[Known]]
    orphans: list[Known]


async def apply(
    database: Database,
    definitions: Definitions,
    *,
    policy: PrunePolicy,
    clock: Clock,
    source: str | None = None,
    declares: Source = "code",
    take_over: bool = False,
    may_fire: bool = True,
) -> Applied:
    """Seed in one transaction; then prune, batch by batch and at last the orphans."""
    source = source or f"app/{definitions.owner}"
    async with database.transaction() as connection:
        declared = await declare(
            connection,
            definitions,
            source=source,
            clock=clock,
            declares=declares,
            take_over=take_over,
            may_fire=may_fire,
        )
    if declared.stale:
        return Applied(declared=declared, warnings=declared.remarks)
    leavers = leaving(definitions, declared.gone)
    cleaning = _Cleaning(database, definitions.owner, declared, clock=clock, source=source)
    applied = Applied(declared=declared, warnings=declared.remarks)
    for batch, members in leavers.batches.items():
        applied = await cleaning.prune(applied, members, f"left the batch {batch}")
    if policy == "delete":
        applied = await cleaning.prune(applied, leavers.orphans, "no longer declared")
    else:
        applied = await cleaning.keep(applied, leavers.orphans, silence=policy == "disable")
    if definitions.owner == API_OWNER:
        return applied
    await cleaning.remove_empty_groups([group.name for group in definitions.groups])
    async with database.acquire() as connection:
        uses = await connection.fetch(manifests["use_retired_jobs"], definitions.owner)
    return structs.replace(applied, warnings=[*applied.warnings, *warnings_of_use(uses)])


async def apply_at_start(
    database: Database,
    definitions: Definitions,
    *,
    policy: PrunePolicy,
    clock: Clock,
    may_fire: bool,
) -> Applied:
    """Apply what the application defines; a database that hiccups is tried again five times."""
    pause = _FIRST_PAUSE
    for retries_left in range(_RETRIES, -1, -1):
        try:
            applied = await apply(
                database, definitions, policy=policy, clock=clock, may_fire=may_fire
            )
        except DatabaseUnavailable as error:
            if not retries_left:
                raise
            logger.warning("declaring: %s; trying again in %.0f s", error, pause)
            await asyncio.sleep(pause)
            pause *= 2
        else:
            return _told(definitions, applied)
    raise AssertionError("unreachable")


def leaving(definitions: Definitions, gone: Sequence[Known]) -> Leavers:
    """Sort what is gone: a batch that does not prune keeps those that left it."""
    pruning = {batch.name: batch.prune for batch in definitions.batches}
    batches: dict[str, list[Known]] = {name: [] for name, prunes in pruning.items() if prunes}
    orphans = []
    for one in gone:
        if one.batch in batches:
            batches[one.batch].append(one)
        elif one.batch not in pruning and definitions.owner != API_OWNER:
            orphans.append(one)
    return Leavers(batches={name: left for name, left in batches.items() if left}, orphans=orphans)


class _Cleaning:
    """What follows a declaration, each step in a transaction of its own."""

    def __init__(
        self, database: Database, owner: str, declared: Declared, *, clock: Clock, source: str
    ) -> None:
        self._database = database
        self._owner = owner
        self._declared_at = declared.at
        self._clock = clock
        self._source = source

    async def prune(self, applied: Applied, left: Sequence[Known], reason: str) -> Applied:
        """Delete what is no longer declared; a failure is told and rolls nothing else back."""
        if not left:
            return applied
        try:
            async with self._step() as step:
                if step is None:
                    return _overtaken(applied)
                connection, now = step
                ids = [one.id for one in left]
                pruned = await prune.mark(
                    connection, ids, source=self._source, reason=reason, now=now
                )
        except Exception as error:
            logger.exception("pruning what %s failed", reason)
            warning = f"pruning what {reason} failed, and is tried again at the next start: {error}"
            return structs.replace(applied, warnings=[*applied.warnings, warning])
        return structs.replace(applied, pruned=sorted([*applied.pruned, *pruned]))

    async def keep(self, applied: Applied, left: Sequence[Known], *, silence: bool) -> Applied:
        """Keep what is no longer declared, and silence it if so told."""
        if not left:
            return applied
        async with self._step() as step:
            if step is None:
                return _overtaken(applied)
            connection, now = step
            locked = await lock_manifests(connection, [one.id for one in left])
            if silence:
                # Nobody was there to decide what came due before: that is no reason of today's.
                await account_for(
                    connection, locked, until=now, now=now, otherwise=manifest_state.MISSED
                )
            rows = await connection.fetch(manifests["undeclare"], locked, now, silence)
            if silence:
                await put_to_rest(connection, locked, now=now)
            await tell_switches(connection, locked, now=now)
            undeclared = sorted(row["external_id"] for row in rows)
            kind, data = "headway.manifest.undeclared.v1", {"disabled": silence}
            records = [audit(kind, one, self._source, data, now) for one in undeclared]
            await HISTORY.append(connection, records, now=now)
        return structs.replace(applied, disabled=undeclared if silence else [])

    async def remove_empty_groups(self, stated: Sequence[str]) -> None:
        """Delete the groups that nobody is in any more."""
        async with self._step() as step:
            if step is not None:
                connection, now = step
                await remove_empty_groups(connection, now=now, owner=self._owner, stated=stated)

    @asynccontextmanager
    async def _step(self) -> AsyncIterator[tuple[Connection, datetime] | None]:
        """A transaction in which nobody declares; none if somebody else did since we have."""
        async with self._database.transaction() as connection:
            await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
            latest = self._owner == API_OWNER or await connection.fetchval(
                applications["declared_last"], self._owner, self._declared_at
            )
            yield (connection, await self._clock.now(connection)) if latest else None


def _overtaken(applied: Applied) -> Applied:
    warning = "another start has declared since: what is to be pruned is left to that one"
    return structs.replace(applied, warnings=[*applied.warnings, warning])


def _told(definitions: Definitions, applied: Applied) -> Applied:
    declared = applied.declared
    if not declared.stale:
        logger.info(
            "%s declares %d manifest(s): %d new, %d changed, %d pruned, %d disabled",
            definitions.owner,
            len(definitions.manifests),
            len(declared.created),
            len(declared.changed),
            len(applied.pruned),
            len(applied.disabled),
        )
    for warning in applied.warnings:
        logger.warning("%s", warning)
    return applied
