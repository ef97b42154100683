"""Reads the state of a world from its tables and streams."""

import asyncio
from datetime import datetime
from typing import Any

from headway_contract import subjects
from headway_jetstream_kit.provisioning import consumer_info
from headway_postgres_kit import Queries
from msgspec import Struct

from headway_testing.processes import SERVICES, Processes, ServiceName

queries = Queries("headway_testing", "world.sql")

# The stream and the consumer of the messages that a service receives.
_CONSUMERS: dict[ServiceName, tuple[str, str]] = {
    "scheduler": (subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER),
    "dispatcher": (subjects.WORK_STREAM, subjects.WORK_CONSUMER),
}
_MOST_NAMED = 5


class Snapshot(Struct, frozen=True, kw_only=True):
    """The reason why the world is busy, if it is, and when each timed pass is due next."""

    busy: str | None
    tick: datetime | None = None
    windows: datetime | None = None
    gate: datetime | None = None


class Watch:
    """Reads the tables and the streams of a world."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes

    async def look(self, now: datetime) -> Snapshot:
        """Return what is in flight.

        A message that has left an outbox is in no table until it is received, and another message
        may follow it. So the world is quiet only if no message is pending after the tables were
        read, and none was received meanwhile.
        """
        received = self.processes.received
        snapshot = await self._read(now)
        if snapshot.busy is None and (
            await self._has_pending() or self.processes.received != received
        ):
            return Snapshot(busy="a message is on its way")
        return snapshot

    async def name_pending(self, now: datetime) -> str:
        """Return the names of unfinished runs and waiting work; empty if there is none."""
        rows = await self.fetch(queries["pending_names"], now, _MOST_NAMED + 1)
        names = [row["name"] for row in rows[:_MOST_NAMED]]
        return ", ".join([*names, "and more"] if len(rows) > _MOST_NAMED else names)

    async def fetch(self, query: str, *arguments: Any) -> list[Any]:
        """Run a query and return its rows."""
        async with self.processes.servers.database.acquire() as connection:
            return list(await connection.fetch(query, *arguments))

    async def _read(self, now: datetime) -> Snapshot:
        up = self.processes.up
        running = [service in up for service in SERVICES]
        [row] = await self.fetch(queries["look"], now, *running, self.processes.ticks)
        return Snapshot(**row)

    async def _has_pending(self) -> bool:
        """Return whether a service that is up has messages to receive."""
        up, broker = self.processes.up, self.processes.servers.broker
        consumers = [names for service, names in _CONSUMERS.items() if service in up]
        found = await asyncio.gather(*(consumer_info(broker, *names) for names in consumers))
        return any(info is None or info["num_pending"] or info["num_ack_pending"] for info in found)
