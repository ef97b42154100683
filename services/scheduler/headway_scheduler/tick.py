"""The tick: queue every manifest that is due, once.

One decision for each occurrence, in one transaction with the work and the event that
announces it. The tick sleeps until the next due time; its cost grows with what is due,
not with what exists.
"""

from datetime import datetime
from uuid import UUID

from headway_decisions.fairness import DueGroup, share
from headway_postgres_kit import Clock, Connection, Database
from headway_service_kit.passes import Wakeup
from headway_tracing import span
from msgspec import Struct

from headway_scheduler.advance import Advanced, advance
from headway_scheduler.store import TICK_LOCK, leaders, lock_manifests, manifests

# How soon a scheduler that lost the lock looks again.
_LOST_THE_LOCK = 0.25


class TickResult(Struct, frozen=True, kw_only=True):
    """What a tick did, and how long it may rest."""

    led: bool
    fired: int = 0
    skipped: int = 0
    rest: float | None = None


class Tick:
    """Ticks for one scheduler process."""

    def __init__(
        self,
        database: Database,
        *,
        holder: str,
        max_entries: int | None,
        relay: Wakeup,
        clock: Clock,
    ) -> None:
        self._database = database
        self._holder = holder
        self._max_entries = max_entries
        self._relay = relay
        self._clock = clock

    async def run_once(self) -> TickResult:
        """Queue every manifest that is due, once."""
        async with self._database.transaction() as connection:
            if not await connection.fetchval(leaders["try_lead"], TICK_LOCK):
                return TickResult(led=False, rest=_LOST_THE_LOCK)
            now = await self._clock.now(connection)
            ids = await self._awake(connection, now)
            advanced = Advanced()
            if ids:
                with span("tick", due=len(ids)):
                    await connection.execute(leaders["take_office"], self._holder, now)
                    ids = await lock_manifests(connection, ids)
                    advanced = await advance(connection, ids, now=now)
            next_wake = await connection.fetchval(manifests["next_wake"])
            rest = _rest(next_wake, await self._clock.now(connection))
        if advanced.queued:
            self._relay.call()
        return TickResult(led=True, fired=advanced.queued, skipped=advanced.skipped, rest=rest)

    async def _awake(self, connection: Connection, now: datetime) -> list[UUID]:
        """The manifests to look at; of more than a cycle takes, a fair share of each group."""
        limit = self._max_entries
        beyond = None if limit is None else limit + 1
        rows = await connection.fetch(manifests["awake"], now, beyond)
        if limit is None or len(rows) <= limit:
            return [row["id"] for row in rows]
        counted = await connection.fetch(manifests["awake_groups"], now, limit)
        shares = share(
            [
                DueGroup(name=row["name"], priority=row["priority"], due=row["due"])
                for row in counted
            ],
            limit,
        )
        rows = await connection.fetch(
            manifests["awake_of_groups"], now, list(shares), list(shares.values())
        )
        return [row["id"] for row in rows]


def _rest(next_wake: datetime | None, now: datetime) -> float | None:
    return None if next_wake is None else max(0.0, (next_wake - now).total_seconds())
