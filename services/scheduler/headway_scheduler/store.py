"""What the scheduler reads and writes, as plain data."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.settled import WorkSettled
from headway_contract.work import RetryPolicy
from headway_decisions.cadence import Cadence
from headway_decisions.due import ManifestView
from headway_history import History
from headway_postgres_kit import Connection, Database, Migrations, Queries
from headway_relay import Outbox, Rejected
from msgspec import Struct

SCHEMA = "scheduler"
MIGRATIONS = Migrations("headway_scheduler", SCHEMA)
OUTBOX = Outbox(SCHEMA)
HISTORY = History(SCHEMA)
REJECTED = Rejected(SCHEMA)

manifests = Queries("headway_scheduler", "sql/manifest.sql")
works = Queries("headway_scheduler", "sql/work.sql")
leaders = Queries("headway_scheduler", "sql/leader.sql")

_TICK_LOCK = 0x48570001
DECLARE_LOCK = 0x48570002


class DueManifest(Struct, frozen=True, kw_only=True):
    """A manifest whose time has come: what the decision needs, and what the work carries."""

    view: ManifestView
    external_id: str
    job: str
    group: str
    input: Any
    priority: int
    retry: RetryPolicy
    timeout_seconds: float
    cancel_grace_seconds: float
    on_lost_contact: str


class UnreadableManifest(Struct, frozen=True, kw_only=True):
    """A manifest whose row this program cannot make sense of."""

    id: UUID
    external_id: str
    next_due_at: datetime
    trouble: str


class Decision(Struct, frozen=True, kw_only=True):
    """One row of the ledger."""

    manifest: UUID
    cause: str
    first_due_at: datetime
    last_due_at: datetime
    work: UUID | None = None
    reason: str | None = None


class TickTransaction:
    """The reads and writes of one tick."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    async def now(self) -> datetime:
        """PostgreSQL's time, after the lock."""
        now: datetime = await self.connection.fetchval(manifests["now"])
        return now

    async def take_office(self, holder: str, now: datetime) -> None:
        """Note who ticks."""
        await self.connection.execute(leaders["take_office"], holder, now)

    async def due_manifests(
        self, now: datetime, *, limit: int
    ) -> list[DueManifest | UnreadableManifest]:
        """The oldest of the manifests whose time has come."""
        rows = await self.connection.fetch(manifests["due"], now, limit)
        return [_read_due(row) for row in rows]

    async def next_due_at(self) -> datetime | None:
        """When the next manifest is due."""
        next_due: datetime | None = await self.connection.fetchval(manifests["next_due"])
        return next_due

    async def decide(self, decisions: Sequence[Decision], *, now: datetime) -> set[UUID]:
        """Write the ledger; returns the work that is really new."""
        if not decisions:
            return set()
        rows = await self.connection.fetch(
            works["decide"],
            [decision.manifest for decision in decisions],
            [decision.cause for decision in decisions],
            [decision.first_due_at for decision in decisions],
            [decision.last_due_at for decision in decisions],
            ["queued" if decision.work else "skipped" for decision in decisions],
            [decision.reason for decision in decisions],
            [decision.work for decision in decisions],
            now,
        )
        return {row["work_id"] for row in rows if row["work_id"] is not None}

    async def add_work(self, decisions: Sequence[Decision], *, now: datetime) -> None:
        """Note work as outstanding."""
        await self.connection.execute(
            works["add"],
            [decision.work for decision in decisions],
            [decision.manifest for decision in decisions],
            [decision.cause for decision in decisions],
            now,
        )

    async def move_on(self, next_due: dict[UUID, datetime | None]) -> None:
        """Write when each manifest is due next."""
        await self.connection.execute(manifests["move_on"], list(next_due), list(next_due.values()))


@asynccontextmanager
async def leader_transaction(database: Database) -> AsyncIterator[TickTransaction | None]:
    """A transaction under the tick's lock, or none if another scheduler has it."""
    async with database.transaction() as connection:
        leads = await connection.fetchval(leaders["try_lead"], _TICK_LOCK)
        yield TickTransaction(connection) if leads else None


async def settle(connection: Connection, outcomes: Sequence[WorkSettled]) -> int:
    """Close outstanding work and move its manifests on; returns how many were outstanding.

    Work that is no longer there was told before: a duplicate changes nothing.
    """
    told = {outcome.work: outcome for outcome in outcomes}
    rows = await connection.fetch(works["lock"], sorted(told))
    rows = [row for row in rows if told[row["id"]].round >= row["round"]]
    await connection.execute(works["remove"], [row["id"] for row in rows])
    owned = [row for row in rows if row["manifest_id"] is not None]
    ends = [told[row["id"]] for row in owned]
    of = [row["manifest_id"] for row in owned]
    await connection.execute(
        works["tell_outcome"],
        of,
        [row["cause"] for row in owned],
        [end.outcome for end in ends],
    )
    await connection.fetch(manifests["lock"], of)
    await connection.execute(
        manifests["settle"],
        of,
        [end.outcome for end in ends],
        [end.settled_at for end in ends],
        [end.dead_letter for end in ends],
    )
    return len(rows)


def _read_due(row: Any) -> DueManifest | UnreadableManifest:
    try:
        return _due_manifest(row)
    except msgspec.ValidationError as error:
        return UnreadableManifest(
            id=row["id"],
            external_id=row["external_id"],
            next_due_at=row["next_due_at"],
            trouble=str(error),
        )


def _due_manifest(row: Any) -> DueManifest:
    return DueManifest(
        view=ManifestView(
            id=row["id"],
            cadence=msgspec.convert(row["cadence"], Cadence),
            zone=row["zone"],
            next_due_at=row["next_due_at"],
            group_enabled=row["group_enabled"],
            blocked_by=row["blocked_by"],
            outstanding=row["outstanding"],
        ),
        external_id=row["external_id"],
        job=row["job"],
        group=row["group_name"],
        input=row["input"],
        priority=row["priority"],
        retry=msgspec.convert(row["retry"], RetryPolicy),
        timeout_seconds=row["timeout_seconds"],
        cancel_grace_seconds=row["cancel_grace_seconds"],
        on_lost_contact=row["on_lost_contact"],
    )
