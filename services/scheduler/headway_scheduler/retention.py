"""Delete old decisions, audit entries, keys, notifications and rejected messages."""

from datetime import timedelta

from headway_postgres_kit import Database
from headway_tracing.log import get_logger

from headway_scheduler.store import (
    IDEMPOTENCY,
    REJECTED,
    enqueued,
    groups,
    notifications,
    occurrences,
    works,
)

log = get_logger(__name__)

_BATCH = 5000


class Retention:
    """The pass that deletes old rows, a batch at a time."""

    def __init__(
        self, database: Database, *, days: float, every: float = 600.0, rejected_days: float = 30.0
    ) -> None:
        self._database = database
        self._kept = timedelta(days=days)
        self._rejected_kept = timedelta(days=rejected_days)
        self._every = every

    async def run_once(self) -> float | None:
        """Delete one batch of each kind; continues at once while there is more."""
        async with self._database.transaction() as connection:

            async def delete(statement: str, *limit: int) -> int:
                status: str = await connection.execute(statement, oldest, *limit)
                return int(status.rpartition(" ")[2])

            now = await self._database.clock.now(connection)
            oldest = now - self._kept
            decisions = await delete(occurrences["forget"], _BATCH)
            audit = await delete(occurrences["forget_history"], _BATCH)
            await delete(occurrences["forget_timings"])
            await delete(occurrences["forget_resolved"])
            await delete(works["forget_overtaken"])
            await delete(notifications["forget"], _BATCH)
            await delete(groups["forget_deleted"])
            keys = await delete(enqueued["forget"], _BATCH)
            await IDEMPOTENCY.purge(connection, now=now)
        rejected = await REJECTED.forget(self._database, kept=self._rejected_kept, limit=_BATCH)
        if decisions or audit:
            log.info("old rows deleted", decisions=decisions, audit=audit)
        return 0.0 if _BATCH in (decisions, audit, keys, rejected) else self._every
