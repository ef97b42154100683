"""Log entries about manifests that a dead letter blocks: when it does, and at every start."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from headway_contract.notifications import ManifestBlocked
from headway_postgres_kit import Database
from headway_tracing.log import get_logger

from headway_scheduler.notifications.recorder import Notification
from headway_scheduler.store import manifests

log = get_logger(__name__)

# Manifests that a start lists.
_LISTED = 20


def log_blocked(facts: Iterable[Any]) -> None:
    """Log the manifests that are blocked by the facts of a committed transaction."""
    for fact in facts:
        if isinstance(fact, Notification) and isinstance(fact.data, ManifestBlocked):
            _log(fact.data.manifest, fact.data.dead_letter)


async def log_still_blocked(database: Database) -> None:
    """Log the manifests that are blocked now."""
    async with database.acquire() as connection:
        rows = await connection.fetch(manifests["blocked"], _LISTED)
    for row in rows:
        _log(row["manifest"], row["dead_letter"])
    more = rows[0]["manifests"] - len(rows) if rows else 0
    if more:
        log.error("more manifests are blocked", manifests=more, remedy="headway dead-letters")


def _log(manifest: str, letter: UUID) -> None:
    remedy = f"headway dead-letters retry {letter}"
    log.error("manifest blocked", manifest=manifest, dead_letter=letter, remedy=remedy)
