"""The tick: queue every manifest that is due, once.

Each occurrence is decided once, in one transaction with its work and its event. The tick sleeps
until the next due time; its cost grows with the number of due manifests, not of all manifests.
"""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from headway_decisions.firing.fairness import DueGroup, cycles_ahead, in_cycles, share
from headway_postgres_kit import Connection, Database
from headway_relay import Handover
from headway_tracing import span
from msgspec import Struct

from headway_scheduler.fire.decide import ROW_FAULTS, advance
from headway_scheduler.fire.record import earliest
from headway_scheduler.store import TICK_LOCK, leaders, manifests

# Seconds before a scheduler that does not lead tries again.
_LOST_THE_LOCK = 0.25
# The bound of the statement `awake_groups`.
_MOST_COUNTED = 100_000


class TickResult(Struct, frozen=True, kw_only=True):
    """Counts of a tick, and when the next one is due, if that is known."""

    led: bool
    fired: int = 0
    skipped: int = 0
    next_at: datetime | None = None
    rest: float | None = None


class _Seen(Struct, frozen=True):
    """The manifests that are due at a time, and the next wake time of the others."""

    at: datetime
    due: list[UUID]
    next_at: datetime | None


@dataclass
class Tick:
    """Ticks for one scheduler process."""

    database: Database
    holder: str
    max_entries: int | None
    relay: Handover
    _known: bool = False
    # The manifests of the next cycles, if more are due than one cycle takes.
    _ahead: deque[list[UUID]] = field(default_factory=deque)

    async def run_once(self) -> TickResult:
        """Queue every manifest that is due, once."""
        seen = await self._look()
        # The first tick always takes the lead, so that users see the leader before any fire.
        if not seen.due and self._known:
            return TickResult(led=True, next_at=seen.next_at, rest=_rest(seen.next_at, seen.at))
        try:
            result = await self._fire(seen, one_by_one=False)
        except ROW_FAULTS:
            result = await self._fire(seen, one_by_one=True)
        self._known = self._known or result.led
        return result

    async def _look(self) -> _Seen:
        """Find due manifests without locking them; `_fire` locks them and reads them again."""
        limit = self.max_entries
        beyond = None if limit is None else limit + 1
        async with self.database.acquire() as connection:
            now = await self.database.clock.now(connection)
            if not self._ahead:
                *rows, later = await connection.fetch(manifests["awake"], now, beyond)
                if limit is None or len(rows) <= limit:
                    return _Seen(now, [row["id"] for row in rows], later["wake_at"])
                self._ahead.extend(await _fair_cycles(connection, now, limit))
        return _Seen(now, self._ahead.popleft() if self._ahead else [], now)

    async def _fire(self, seen: _Seen, *, one_by_one: bool) -> TickResult:
        async with self.database.transaction() as connection:
            led = await connection.fetch(leaders["lead"], TICK_LOCK, self.holder, seen.at, seen.due)
            if not led:
                self._ahead.clear()
                return TickResult(led=False, rest=_LOST_THE_LOCK)
            locked = [row["id"] for row in led[1:]]
            with span("tick", due=len(seen.due)):
                now = await self.database.clock.now(connection)
                advanced = await advance(connection, locked, now=now, one_by_one=one_by_one)
            next_at = earliest((seen.next_at, advanced.wake_at))
            rest = _rest(next_at, await self.database.clock.now(connection))
        if advanced.left_in_outbox:
            self.relay.call()
        self.relay.hand(advanced.messages)
        return TickResult(
            led=True, fired=advanced.queued, skipped=advanced.skipped, next_at=next_at, rest=rest
        )


async def _fair_cycles(connection: Connection, now: datetime, limit: int) -> list[list[UUID]]:
    """Share this and the next cycles fairly among the groups with due manifests."""
    counted = await connection.fetch(manifests["awake_groups"], now)
    if sum(row["due"] for row in counted) >= _MOST_COUNTED:
        # Groups behind a backlog that is longer than the bound are counted separately.
        names = [row["name"] for row in counted]
        counted += await connection.fetch(manifests["awake_others"], now, names, limit)
    groups = [DueGroup(**dict(row)) for row in counted]
    room = limit * cycles_ahead(sum(group.due for group in groups), limit)
    shares = share(groups, room)
    rows = await connection.fetch(
        manifests["awake_of_groups"], now, list(shares), list(shares.values())
    )
    shared: dict[str, list[UUID]] = defaultdict(list)
    for row in rows:
        shared[row["name"]].append(row["id"])
    return in_cycles(shared, limit)


def _rest(next_at: datetime | None, now: datetime) -> float | None:
    return None if next_at is None else max(0.0, (next_at - now).total_seconds())
