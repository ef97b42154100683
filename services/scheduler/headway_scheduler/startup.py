"""Start-up: seed, then prune what is no longer declared, once, before the first tick."""

import asyncio
import logging
from collections.abc import Sequence

from headway.definitions import API_OWNER, Definitions
from headway_contract.scheduling import PrunePolicy
from headway_postgres_kit import Clock, Database, DatabaseUnavailable
from msgspec import Struct, structs

from headway_scheduler import prune
from headway_scheduler.advance import account_for
from headway_scheduler.declare import Declared, Known, audit, declare
from headway_scheduler.store import HISTORY, groups, lock_manifests, manifests

logger = logging.getLogger(__name__)

_CHANCES = 5
_FIRST_PAUSE = 2.0


class Applied(Struct, frozen=True, kw_only=True):
    """What applying definitions came to. `warnings` tell what failed and will be tried again."""

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
    may_fire: bool = True,
) -> Applied:
    """Seed in one transaction; then prune, batch by batch and at last the orphans."""
    source = source or f"app/{definitions.owner}"
    async with database.transaction() as connection:
        now = await clock.now(connection)
        declared = await declare(connection, definitions, source=source, now=now, may_fire=may_fire)
    if declared.stale:
        warning = (
            f"a newer generation of {definitions.owner!r} than {definitions.generation} has "
            "declared its manifests already: nothing was changed"
        )
        return Applied(declared=declared, warnings=[warning])
    leavers = leaving(definitions, declared.gone)
    applied = Applied(declared=declared)
    for batch, members in leavers.batches.items():
        reason = f"left the batch {batch}"
        applied = await _attempt(applied, database, clock, members, reason, source)
    if policy == "delete":
        reason = "no longer declared"
        applied = await _attempt(applied, database, clock, leavers.orphans, reason, source)
    else:
        silence = policy == "disable"
        left = await _undeclare(database, clock, leavers.orphans, source, silence=silence)
        applied = structs.replace(applied, disabled=left if silence else [])
    if definitions.owner != API_OWNER:
        async with database.transaction() as connection:
            stated = [group.name for group in definitions.groups]
            await connection.fetch(groups["remove_empty"], definitions.owner, stated)
    return applied


async def apply_at_start(
    database: Database,
    definitions: Definitions,
    *,
    policy: PrunePolicy,
    clock: Clock,
    may_fire: bool,
) -> Applied:
    """Apply what the application defines; a database that hiccups gets five chances."""
    pause = _FIRST_PAUSE
    for chance in range(1, _CHANCES + 1):
        try:
            applied = await apply(
                database, definitions, policy=policy, clock=clock, may_fire=may_fire
            )
        except DatabaseUnavailable as error:
            if chance == _CHANCES:
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


async def _attempt(
    applied: Applied,
    database: Database,
    clock: Clock,
    left: Sequence[Known],
    reason: str,
    source: str,
) -> Applied:
    """Prune in a transaction of its own; a failure is told and rolls nothing else back."""
    if not left:
        return applied
    try:
        async with database.transaction() as connection:
            now = await clock.now(connection)
            pruned = await prune.mark(
                connection, [one.id for one in left], source=source, reason=reason, now=now
            )
    except Exception as error:
        logger.exception("pruning what %s failed", reason)
        warning = f"pruning what {reason} failed, and is tried again at the next start: {error}"
        return structs.replace(applied, warnings=[*applied.warnings, warning])
    return structs.replace(applied, pruned=sorted([*applied.pruned, *pruned]))


async def _undeclare(
    database: Database, clock: Clock, left: Sequence[Known], source: str, *, silence: bool
) -> list[str]:
    """Keep what is no longer declared, and silence it if so told."""
    if not left:
        return []
    async with database.transaction() as connection:
        now = await clock.now(connection)
        locked = await lock_manifests(connection, [one.id for one in left])
        if silence:
            await account_for(connection, locked, until=now, now=now)
        rows = await connection.fetch(manifests["undeclare"], locked, now, silence)
        undeclared = sorted(row["external_id"] for row in rows)
        kind, data = "headway.manifest.undeclared.v1", {"disabled": silence}
        await HISTORY.append(
            connection, [audit(kind, one, source, data, now) for one in undeclared], now=now
        )
    return undeclared


def _told(definitions: Definitions, applied: Applied) -> Applied:
    declared = applied.declared
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
