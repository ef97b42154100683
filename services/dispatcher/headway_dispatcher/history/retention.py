"""Retention: delete old rows in batches.

Work that was settled before the retention time is deleted with its runs, dead letters, leases and
event ids; unsettled work and work with an open dead letter never are. Days of history are dropped
whole, after snapshots of the work that outlives them. Crashed workers and rejected messages have
their own retention times. Each batch of deleted work leaves one record in history, so that `verify`
knows which rows may be gone.
"""

from datetime import date, datetime, timedelta
from uuid import UUID

from headway_postgres_kit import Database, DatabaseUnavailable
from headway_tracing import span
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.events import deleted_record
from headway_dispatcher.history.pages import FIRST
from headway_dispatcher.history.snapshots import write_snapshots
from headway_dispatcher.store import HISTORY, IDEMPOTENCY, REJECTED, retention

log = get_logger(__name__)

BATCH = 1000
_INBOX_PAGE = 50_000
_DAYS_AHEAD = 7
_LOCK = 0x48570013


class Cleaned(Struct, frozen=True, kw_only=True):
    """The result of a clean-up pass."""

    days_made: int = 0
    works: int = 0
    days_dropped: int = 0
    snapshots: int = 0
    rejected: int = 0

    @property
    def unfinished(self) -> bool:
        """Whether the next pass should run at once."""
        return BATCH in (self.works, self.rejected)


class Retention:
    """The clean-up of one dispatcher process."""

    def __init__(
        self,
        database: Database,
        *,
        days: float,
        worker_days: float = 7.0,
        rejected_days: float = 30.0,
    ) -> None:
        self._database = database
        self._kept = timedelta(days=days)
        self._workers_kept = timedelta(days=worker_days)
        self._rejected_kept = timedelta(days=rejected_days)
        self._swept_to = FIRST

    async def run_once(self) -> Cleaned:
        """Create partitions, delete one batch of old work, and drop old days of history."""
        async with self._database.acquire() as connection:
            times = await store.read_times(connection, self._database)
        with span("clean_up"):
            made = await self._create_days(times.real)
            works = await self._delete_work(times.schedule - self._kept)
            dropped, snapshots = 0, 0
            if works < BATCH:
                dropped, snapshots = await self._drop_days(times.real - self._kept)
                await self._delete_unreferenced(times.real)
            rejected = await REJECTED.forget(self._database, kept=self._rejected_kept, limit=BATCH)
        if works or dropped or rejected:
            log.info("old rows deleted", works=works, days=dropped, rejected_messages=rejected)
        return Cleaned(
            days_made=made,
            works=works,
            days_dropped=dropped,
            snapshots=snapshots,
            rejected=rejected,
        )

    async def _create_days(self, now: datetime) -> int:
        """Create the partitions of the next days, and of days in the default partition."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(retention["missing_days"], now, _DAYS_AHEAD)
        made = 0
        for row in rows:
            made += await self._alter(retention["add_day"], row["day"])
        return made

    async def _delete_work(self, settled_before: datetime) -> int:
        """Delete a batch of old work with everything that belongs to it; returns its size."""
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
            await connection.execute(retention["delete_runs"], works)
            gone = await connection.fetch(retention["delete_leases"], [row["id"] for row in leases])
            await connection.execute(retention["delete_inbox"], [row["id"] for row in gone])
            await connection.execute(retention["delete_letters"], works)
            await connection.execute(retention["delete_works"], works)
            await HISTORY.append(connection, [deleted_record("settled_before", settled_before)])
        return len(found)

    async def _drop_days(self, ended_before: datetime) -> tuple[int, int]:
        """Drop old days of history; returns their number, and the number of snapshots."""
        async with self._database.acquire() as connection:
            rows = await connection.fetch(retention["old_days"], ended_before)
        dropped, snapshots = 0, 0
        for row in rows:
            snapshots += await write_snapshots(self._database, row["day"])
            if not await self._alter(retention["drop_day"], row["day"]):
                # Without the later days, work of an earlier day would never end.
                break
            dropped += 1
        return dropped, snapshots

    async def _delete_unreferenced(self, now: datetime) -> None:
        """Delete event ids of unknown leases (one page), answers, deleted groups and workers."""
        async with self._database.transaction() as connection:
            reached: UUID | None = await connection.fetchval(
                retention["sweep_inbox"], self._swept_to, now - self._kept, _INBOX_PAGE
            )
        self._swept_to = reached or FIRST
        async with self._database.transaction() as connection:
            await IDEMPOTENCY.purge(connection, now=now)
        async with self._database.acquire() as connection:
            await connection.execute(retention["forget_groups"], now - self._kept)
            await connection.execute(retention["forget_workers"], now - self._workers_kept)

    async def _alter(self, query: str, day: date) -> bool:
        """Add or drop a day, unless another transaction uses it: then a later pass does."""
        try:
            async with self._database.transaction() as connection:
                await connection.execute(retention["be_brief"])
                if not await connection.fetchval(retention["try_lock"], _LOCK):
                    return False
                await connection.execute(query, day)
        except DatabaseUnavailable as error:
            log.info("history partition not altered", day=day, error=error)
            return False
        return True
