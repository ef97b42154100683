"""Delete old decisions, audit entries, keys, notifications and rejected messages."""

from dataclasses import dataclass
from datetime import timedelta

from headway_postgres_kit import Database
from headway_tracing.log import get_logger

from headway_scheduler import store

log = get_logger(__name__)

_BATCH = 5000


@dataclass(frozen=True)
class Retention:
    """The pass that deletes old rows, a batch at a time."""

    database: Database
    days: float
    every: float = 600.0
    rejected_days: float = 30.0

    async def run_once(self) -> float | None:
        """Delete one batch of each kind; continues at once while there is more."""
        async with self.database.transaction() as connection:

            async def delete(statement: str, *limit: int) -> int:
                status: str = await connection.execute(statement, oldest, *limit)
                return int(status.rpartition(" ")[2])

            now = await self.database.clock.now(connection)
            oldest = now - timedelta(days=self.days)
            decisions = await delete(store.occurrences["forget"], _BATCH)
            audit = await delete(store.occurrences["forget_history"], _BATCH)
            await delete(store.occurrences["forget_timings"])
            await delete(store.occurrences["forget_resolved"])
            await delete(store.works["forget_overtaken"])
            await delete(store.notifications["forget"], _BATCH)
            await delete(store.groups["forget_deleted"])
            keys = await delete(store.enqueued["forget"], _BATCH)
            await store.IDEMPOTENCY.purge(connection, now=now)
        rejected = await store.REJECTED.forget(
            self.database, kept=timedelta(days=self.rejected_days), limit=_BATCH
        )
        if decisions or audit:
            log.info("old rows deleted", decisions=decisions, audit=audit)
        return 0.0 if _BATCH in (decisions, audit, keys, rejected) else self.every
