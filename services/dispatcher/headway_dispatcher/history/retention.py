"""Clean-up: what is older than it needs to be, a batch at a time.

Work that was settled longer ago than history is kept goes with its runs, dead letters, leases
and the event ids that were remembered for them. Never what is unsettled, and never work with a
dead letter that awaits a person. Days of history are dropped whole, after snapshots of the work
that outlives them. Workers that crashed and messages that were rejected are kept for a time of
their own. Each batch of deleted work leaves one line in history, so that `verify` knows
what may be gone.
"""

import logging
from datetime import date, datetime, timedelta
from uuid import UUID

from headway_postgres_kit import Clock, Connection, Database, DatabaseUnavailable
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.history import history_records
from headway_dispatcher.history.pages import FIRST
from headway_dispatcher.history.snapshots import keep_what_outlives
from headway_dispatcher.store import HISTORY, IDEMPOTENCY, REJECTED, retention

logger = logging.getLogger(__name__)

BATCH = 1000
_INBOX_PAGE = 50_000
_DAYS_AHEAD = 7
_LOCK = 0x48570013


class Cleaned(Struct, frozen=True, kw_only=True):
    """What a pass of the clean-up did."""

    days_made: int = 0
    works: int = 0
    days_dropped: int = 0
    snapshots: int = 0
    rejected: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether there is more to delete right away."""
        return BATCH in (self.works, self.rejected)


class Retention:
    """The clean-up of one dispatcher process."""

    def __init__(
        self,
        database: Database,
        *,
        days: float,
        clock: Clock,
        worker_days: float = 7.0,
        rejected_days: float = 30.0,
    ) -> None:
        self._database = database
        self._kept = timedelta(days=days)
        self._workers_kept = timedelta(days=worker_days)
        self._rejected_kept = timedelta(days=rejected_days)
        self._clock = clock
        self._swept_to = FIRST

    async def run_once(self) -> Cleaned:
        """Make days ahead, delete one batch of old work, and drop days that are too old."""
        async with self._database.acquire() as connection:
            times = await store.read_times(connection, self._clock)
        with span("clean_up"):
            made = await self._make_days(times.real)
            works = await self._forget(times.schedule - self._kept)
            dropped, snapshots = 0, 0
            if works < BATCH:
                dropped, snapshots = await self._drop_days(times.real - self._kept)
                await self._sweep_inbox(times.real - self._kept)
                await self._forget_answers(times.real)
                await self._forget_groups(times.real - self._kept)
                await self._forget_workers(times.real - self._workers_kept)
            rejected = await REJECTED.forget(self._database, kept=self._rejected_kept, limit=BATCH)
        if works or dropped or rejected:
            logger.info(
                "forgot %d work(s), %d day(s) of history and %d rejected message(s)",
                works,
                dropped,
                rejected,
            )
        return Cleaned(
            days_made=made,
            works=works,
            days_dropped=dropped,
            snapshots=snapshots,
            rejected=rejected,
        )

    async def _make_days(self, now: datetime) -> int:
        """Make partitions ahead of time, and for what had to wait in the default one."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(retention["missing_days"], now, _DAYS_AHEAD)
        made = 0
        for row in rows:
            made += await self._alter(retention["add_day"], row["day"])
        return made

    async def _forget(self, settled_before: datetime) -> int:
        """Delete a batch of work that was settled long ago, with all that belongs to it."""
        async with self._database.transaction() as connection:
            if not await connection.fetchval(retention["try_lock"], _LOCK):
                return 0
            rows = await connection.fetch(retention["expired_work"], settled_before, BATCH)
            found = [row["id"] for row in rows]
            if not found:
                return 0
            leases = await connection.fetch(retention["lock_leases"], found)
            rows = await connection.fetch(retention["lock_settled"], found)
            works = [row["id"] for row in rows]
            await _delete(connection, works, [row["id"] for row in leases])
            await HISTORY.append(connection, [history_records.work_deleted(settled_before)])
        return len(found)

    async def _drop_days(self, ended_before: datetime) -> tuple[int, int]:
        """Drop days of history that are too old; returns how many, and snapshots written."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(retention["old_days"], ended_before)
        dropped, snapshots = 0, 0
        for row in rows:
            snapshots += await keep_what_outlives(self._database, row["day"])
            if not await self._alter(retention["drop_day"], row["day"]):
                # Without the later days, work that an earlier one tells of would never have ended.
                break
            dropped += 1
        return dropped, snapshots

    async def _sweep_inbox(self, received_before: datetime) -> None:
        """Forget event ids of leases that nobody knows; one page each time, round and round."""
        async with self._database.transaction() as connection:
            reached: UUID | None = await connection.fetchval(
                retention["sweep_inbox"], self._swept_to, received_before, _INBOX_PAGE
            )
        self._swept_to = reached or FIRST

    async def _forget_answers(self, now: datetime) -> None:
        async with self._database.transaction() as connection:
            await IDEMPOTENCY.purge(connection, now=now)

    async def _forget_groups(self, deleted_before: datetime) -> None:
        async with self._database.transaction() as connection:
            await connection.execute(retention["forget_groups"], deleted_before)

    async def _forget_workers(self, heard_before: datetime) -> None:
        async with self._database.acquire() as connection:
            await connection.execute(retention["forget_workers"], heard_before)

    async def _alter(self, query: str, day: date) -> bool:
        """Add or drop a day, unless somebody else is at it or reads it: then it can wait."""
        try:
            async with self._database.transaction() as connection:
                await connection.execute(retention["be_brief"])
                if not await connection.fetchval(retention["try_lock"], _LOCK):
                    return False
                await connection.execute(query, day)
        except DatabaseUnavailable as error:
            logger.info("the history of %s is not altered yet: %s", day, error)
            return False
        return True


async def _delete(connection: Connection, works: list[UUID], leases: list[UUID]) -> None:
    await connection.execute(retention["delete_runs"], works)
    gone = await connection.fetch(retention["delete_leases"], leases)
    await connection.execute(retention["delete_inbox"], [row["id"] for row in gone])
    await connection.execute(retention["delete_letters"], works)
    await connection.execute(retention["delete_works"], works)
