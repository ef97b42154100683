"""Clean-up: decisions, audit and rejected messages that are older than they need to be."""

import logging
from datetime import timedelta

from headway_postgres_kit import Clock, Database

from headway_scheduler.store import (
    IDEMPOTENCY,
    REJECTED,
    enqueued,
    groups,
    notifications,
    occurrences,
    works,
)

logger = logging.getLogger(__name__)

_BATCH = 5000


class Retention:
    """Forgets what is old, a batch at a time."""

    def __init__(
        self,
        database: Database,
        *,
        days: float,
        clock: Clock,
        every: float = 600.0,
        rejected_days: float = 30.0,
    ) -> None:
        self._database = database
        self._kept = timedelta(days=days)
        self._rejected_kept = timedelta(days=rejected_days)
        self._clock = clock
        self._every = every

    async def run_once(self) -> float | None:
        """Delete one batch of each kind; goes on at once while there is more."""
        async with self._database.transaction() as connection:
            oldest = await self._clock.now(connection) - self._kept
            decisions = _count(await connection.execute(occurrences["forget"], oldest, _BATCH))
            audit = _count(await connection.execute(occurrences["forget_history"], oldest, _BATCH))
            await connection.execute(occurrences["forget_timings"], oldest)
            await connection.execute(occurrences["forget_resolved"], oldest)
            await connection.execute(works["forget_overtaken"], oldest)
            await connection.execute(notifications["forget"], oldest, _BATCH)
            await connection.execute(groups["forget_deleted"], oldest)
            keys = _count(await connection.execute(enqueued["forget"], oldest, _BATCH))
            await IDEMPOTENCY.purge(connection, now=oldest + self._kept)
        rejected = await REJECTED.forget(self._database, kept=self._rejected_kept, limit=_BATCH)
        if decisions or audit:
            logger.info("forgot %d decision(s) and %d line(s) of audit", decisions, audit)
        return 0.0 if _BATCH in (decisions, audit, keys, rejected) else self._every


def _count(status: str) -> int:
    """How many rows a statement touched, from what the server answers."""
    return int(status.rpartition(" ")[2])
