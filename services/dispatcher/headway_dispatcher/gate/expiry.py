"""Orders that nobody has claimed by the time at which their work had to begin.

Work that waits is settled by the gate once that time is over. An order may lie ready for a worker
that is busy: it is taken back as a cancel takes one back, so the broker decides between this and
a claim, and whoever claimed in time goes on.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_jetstream_kit import Broker
from headway_postgres_kit import Clock, Database

from headway_dispatcher import store
from headway_dispatcher.runs.fencing import take_back
from headway_dispatcher.runs.settle import EXPIRED
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import leases

BATCH = 1000
# How soon to look again at an order that somebody claimed just when it was to be taken back.
_LOOK_AGAIN = 0.5


class Expiry:
    """Takes orders back whose work had to begin by now, for one dispatcher process."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        settings: DispatcherSettings,
        *,
        name: str,
        clock: Clock,
    ) -> None:
        self._database = database
        self._broker = broker
        self._silence = timedelta(seconds=settings.orphan_timeout_seconds)
        self._name = name
        self._clock = clock

    async def run_once(self) -> float | None:
        """Take back every unclaimed order that has a run which is too late by now."""
        async with self._database.acquire() as connection:
            times = await store.read_times(connection, self._clock)
            now = times.schedule
            rows = await connection.fetch(
                leases["unclaimed_until"], BATCH, times.real - self._silence
            )
        late = _by_lease([row for row in rows if row["start_by"] <= now])
        taken_back = await asyncio.gather(
            *(self._take_back(of_lease, now) for of_lease in late.values())
        )
        return _rest(rows, now, all_taken=all(taken_back))

    async def _take_back(self, rows: Sequence[Any], now: datetime) -> bool:
        reasons = {row["run_id"]: EXPIRED for row in rows}
        return await take_back(
            self._broker,
            self._database,
            rows[0],
            reasons,
            speaker=self._name,
            why="expired",
            now=now,
        )


def _by_lease(rows: Sequence[Any]) -> dict[UUID, list[Any]]:
    leases_of: dict[UUID, list[Any]] = {}
    for row in rows:
        leases_of.setdefault(row["lease_id"], []).append(row)
    return leases_of


def _rest(rows: Sequence[Any], now: datetime, *, all_taken: bool) -> float | None:
    """Until the next time that has not come, or none; what was just claimed shows in a moment."""
    if not all_taken:
        return _LOOK_AGAIN
    upcoming = [row["start_by"] for row in rows if row["start_by"] > now]
    if upcoming:
        return float((min(upcoming) - now).total_seconds())
    return 0.0 if len(rows) == BATCH else None
