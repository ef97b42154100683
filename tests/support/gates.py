"""Gates on a database of their own, without brokers and workers: work goes in, runs come out."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import msgspec
from headway_contract import event
from headway_contract.lifecycle import Failure
from headway_contract.orders import RunDispatched
from headway_contract.work import ManifestChanged, WorkBroughtForward, WorkQueued
from headway_decisions.runs.folding import Run
from headway_dispatcher.gate.gate import Gate, GateResult
from headway_dispatcher.gate.waits import Waits
from headway_dispatcher.intake import work_intake
from headway_dispatcher.runs import settle
from headway_dispatcher.runs.completed import settle_completed
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import HISTORY, Times
from headway_dispatcher.wakeups import Wakeups
from headway_history import Record
from headway_postgres_kit import DATABASE_CLOCK, Clock, Connection, Database, StatementBatch

from support.queries import Queries
from support.works import queued

WATCH_CAPS = (Path(__file__).parent / "watch_caps.sql").read_text()
START = datetime(2027, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
STEP = timedelta(seconds=60)

# Insert the rows of runs that only were ordered.
KEEP_ORDERED = """
    INSERT INTO dispatcher.metadata SELECT * FROM dispatcher.run WHERE state = 'pending'
    ON CONFLICT (run_id) DO NOTHING
"""


class SetClock:
    """A clock that shows what it was set to."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    async def now(self, connection: Any) -> datetime:
        return self.at


class Gates(Queries):
    """The dispatcher's part of capacity, driven by hand."""

    def __init__(self, database: Database, *, clock: Clock = DATABASE_CLOCK, **settings: Any):
        self.database = database
        database.clock = clock
        fields = {"database_url": "", "nats_url": "", **settings}
        self.settings = DispatcherSettings(**fields)
        self.wake = Wakeups()
        self._orders: list[RunDispatched] = []
        self.gate = self.another(database)

    @property
    def clock(self) -> Clock:
        """The source of schedule time."""
        return self.database.clock

    def another(self, database: Database) -> Gate:
        """One more gate, as another dispatcher would have it."""
        database.clock = self.clock
        return Gate(database, self.settings, self.wake)

    async def watch_caps(self) -> None:
        async with self.database.acquire() as connection:
            await connection.execute(WATCH_CAPS.replace("{cap}", str(self.settings.max_active)))

    async def worker(self, *jobs: str, slots: int = 1000, name: str = "worker") -> None:
        """A worker that lives for an hour without a heartbeat."""
        await self.execute(
            "INSERT INTO dispatcher.worker (name, nonce, host, sdk, sdk_version, jobs, slots,"
            " draining, first_heard_at, last_heard_at)"
            " VALUES ($1, $1, '', '', '', $2, $3, false, now(), now() + interval '1 hour')",
            name,
            list(jobs),
            slots,
        )

    async def queue(self, *works: WorkQueued) -> list[UUID]:
        """Take work in, as the intake does."""
        async with self.database.transaction() as connection:
            now = await self.clock.now(connection)
            events = [
                event(work, id=work.work, source="t", subject=work.work, time=now) for work in works
            ]
            records: list[Record] = []
            await work_intake.queue_work(connection, events, now, STEP, records)
            await HISTORY.append(connection, records)
        return [work.work for work in works]

    async def tell(self, *changes: Any) -> None:
        """Apply limits, as the intake does."""
        async with self.database.transaction() as connection:
            await work_intake.apply_limits(connection, changes)

    async def run(self) -> GateResult:
        """One pass."""
        return await self.gate.run_once()

    async def drain(self) -> int:
        """Passes until the gate rests; how much was admitted."""
        admitted = 0
        while True:
            result = await self.gate.run_once()
            admitted += result.admitted
            if result.rest != 0.0:
                return admitted

    async def begin(self, *works: UUID) -> None:
        """Let the bodies of active runs begin, as a worker would tell."""
        async with self.database.transaction() as connection:
            now = await self.clock.now(connection)
            await connection.execute(KEEP_ORDERED)
            rows = await connection.fetch(
                "UPDATE dispatcher.metadata SET state = 'in_progress', started_at = $2,"
                " start_heard_at = clock_timestamp() WHERE state = 'pending'"
                " AND work_id = ANY($1::uuid[]) RETURNING run_id, work_id",
                list(works),
                now,
            )
            records = [_run_record("started", row, now) for row in rows]
            await HISTORY.append(connection, records)

    async def end(self, *works: UUID, failure: str | None = None, retryable: bool = True) -> int:
        """End active runs, all of them if no work is named; how many there were."""
        async with self.database.transaction() as connection:
            now = await self.clock.now(connection)
            await connection.execute(KEEP_ORDERED)
            rows = await connection.fetch(
                "UPDATE dispatcher.metadata SET state = $2, finished_at = greatest($3, created_at),"
                " failure = $4 WHERE state IN ('pending', 'in_progress')"
                " AND (work_id = ANY($1::uuid[]) OR $1 = '{}')"
                " RETURNING run_id, work_id, state, started_at, finished_at, failure",
                list(works),
                "completed" if failure is None else "failed",
                now,
                None if failure is None else {"kind": failure, "message": ""},
            )
            reported = (
                None if failure is None else Failure(message="", kind=failure, retryable=retryable)
            )
            ended = {
                row["work_id"]: Run(
                    id=row["run_id"],
                    state="completed" if failure is None else "failed",
                    started_at=row["started_at"],
                    finished_at=now,
                    failure=reported,
                )
                for row in rows
            }
            await connection.execute(
                "UPDATE dispatcher.lease SET ended_at = clock_timestamp() WHERE ended_at IS NULL"
                " AND NOT EXISTS (SELECT FROM dispatcher.run WHERE lease_id = lease.id"
                " AND finished_at IS NULL)"
            )
            changes = settle.Changes(
                records=[
                    _run_record(row["state"], row, row["finished_at"], failure=row["failure"])
                    for row in rows
                ]
            )
            writes = StatementBatch()
            if failure is None:
                times = Times(real=now, schedule=now)
                await settle_completed(
                    connection, ended, times=times, changes=changes, writes=writes
                )
            else:
                await settle.settle(connection, ended, now=now, changes=changes, writes=writes)
            await changes.write(connection, writes, now=now)
        return len(rows)

    async def active(self) -> list[UUID]:
        rows = await self.rows(
            "SELECT work_id FROM dispatcher.run WHERE state IN ('pending', 'in_progress')"
        )
        return [row["work_id"] for row in rows]

    async def reasons(self) -> dict[UUID, str]:
        """Why everything that waits does so, in the words that people are told."""
        await Waits(self.database, self.settings).run_once()
        return {
            row["id"]: row["reason"] for row in await self.rows("SELECT * FROM dispatcher.waiting")
        }

    async def orders(self) -> list[RunDispatched]:
        """All orders so far, as the gate handed them to the relay."""
        messages, _ = self.wake.relay.take()
        self._orders += [
            msgspec.convert(msgspec.json.decode(message.body)["data"], RunDispatched)
            for message in messages
            if message.subject.startswith("headway.run.")
        ]
        return list(self._orders)

    async def execute(self, query: str, *arguments: Any) -> None:
        async with self.database.acquire() as connection:
            await connection.execute(query, *arguments)


def _run_record(what: str, row: Any, at: datetime, **data: Any) -> Record:
    """Make the record of a run's change that history keeps."""
    return Record(
        event_id=f"{what}.{row['run_id']}",
        type=f"headway.run.{what}.v1",
        subject=str(row["run_id"]),
        source="headway/dispatcher",
        occurred_at=at,
        data=data,
        work=row["work_id"],
        run=row["run_id"],
    )


def work(**fields: Any) -> WorkQueued:
    """A piece of work of group and job `etl`."""
    stated = {"work": uuid4(), "group": "etl", "job": "etl", "cause": "test", "queued_at": START}
    return queued(**{**stated, **fields})


@asynccontextmanager
async def many_pools(url: str, count: int) -> AsyncIterator[list[Database]]:
    """As many pools as there are dispatchers."""
    pools = [await Database.connect(url, name=f"gate-{n}", max_connections=2) for n in range(count)]
    try:
        yield pools
    finally:
        for pool in pools:
            await pool.close()


async def waiting_reasons(gates: Gates) -> list[str]:
    """Why all that waits waits."""
    return sorted((await gates.reasons()).values())


def switch(manifest: UUID, version: int, *, enabled: bool) -> ManifestChanged:
    """A manifest of the group `etl` is enabled or disabled."""
    return ManifestChanged(
        manifest_id=manifest, manifest="m", group="etl", version=version, enabled=enabled
    )


async def bring_forward(connection: Connection, work: UUID) -> None:
    """Take in that work shall run before other work."""
    records: list[Record] = []
    requests = [WorkBroughtForward(work=work, group="etl", at=START)]
    await work_intake.bring_forward(connection, requests, START, records)
    await HISTORY.append(connection, records)
