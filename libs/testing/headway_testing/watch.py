"""What can be seen of a world from outside: what is in flight in it, and its ledger."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from headway_contract import subjects
from headway_jetstream_kit import Broker
from headway_jetstream_kit.provisioning import consumer_info
from headway_postgres_kit import Database, Queries
from msgspec import Struct

from headway_testing.outages import ServiceName
from headway_testing.processes import Crew
from headway_testing.servers import Servers

_queries = Queries("headway_testing", "world.sql")

# What the services tell each other, and who is there to take it in.
_TOLD: dict[ServiceName, tuple[str, str]] = {
    "scheduler": (subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER),
    "dispatcher": (subjects.WORK_STREAM, subjects.WORK_CONSUMER),
}
_MOST_NAMED = 5


class Sight(Struct, frozen=True, kw_only=True):
    """What is in flight, if anything is, and when the passes have something to do next."""

    busy: str | None
    tick: datetime | None
    windows: datetime | None
    gate: datetime | None


class Watch:
    """Looks at the tables and the streams of a world."""

    def __init__(self, database: Database, broker: Broker) -> None:
        self._database = database
        self._broker = broker

    @classmethod
    @asynccontextmanager
    async def keep(cls, servers: Servers) -> AsyncIterator["Watch"]:
        """A watch over these servers, for as long as it is needed."""
        # What is in flight is always little, but while the tables are small PostgreSQL would
        # rather read them through, and goes on doing so as they grow.
        database = await Database.connect(
            servers.database_url, name="headway-world", settings={"enable_seqscan": "off"}
        )
        try:
            broker = await Broker.connect(servers.nats_url, name="headway-world")
            try:
                yield cls(database, broker)
            finally:
                await broker.close()
        finally:
            await database.close()

    async def look(self, now: datetime, crew: Crew) -> Sight:
        """See what is in flight.

        A message that has left an outbox is in no table until it is taken in, and may by then be
        followed by another one. So all is quiet only if none is left after the tables were read,
        and none was taken in meanwhile. If none left an outbox meanwhile, either, both can be
        looked at together.
        """
        taken_in, told = crew.taken_in, crew.told
        if crew.tells_nothing:
            sight, is_told = await asyncio.gather(
                self._read(now, crew.up, ticks=crew.ticks), self._anything_told(crew.up)
            )
            is_told = is_told or crew.told != told or not crew.tells_nothing
        else:
            sight = await self._read(now, crew.up, ticks=crew.ticks)
            is_told = sight.busy is None and await self._anything_told(crew.up)
        if sight.busy is None and (is_told or crew.taken_in != taken_in):
            return Sight(busy="a message is on its way", tick=None, windows=None, gate=None)
        return sight

    async def named(self, now: datetime) -> str:
        """The runs that are under way and the work that waits, by name; empty if there is none."""
        rows = await self._fetch(_queries["named"], now, _MOST_NAMED + 1)
        names = [row["named"] for row in rows[:_MOST_NAMED]]
        return ", ".join([*names, "and more"] if len(rows) > _MOST_NAMED else names)

    async def decisions(self) -> list[Any]:
        """Every decision, in the order of time."""
        return await self._fetch(_queries["ledger"])

    async def declared(self) -> set[str]:
        """Every manifest that there ever was."""
        return {row["subject"] for row in await self._fetch(_queries["declared"])}

    async def tidy(self) -> None:
        """Keep the tables quick to read."""
        async with self._database.acquire() as connection:
            await connection.execute(_queries["tidy"])

    async def _read(self, now: datetime, up: set[ServiceName], *, ticks: bool) -> Sight:
        services: tuple[ServiceName, ...] = ("scheduler", "dispatcher", "worker")
        [row] = await self._fetch(_queries["look"], now, *(one in up for one in services), ticks)
        return Sight(**row)

    async def _anything_told(self, up: set[ServiceName]) -> bool:
        """Whether those who are up have not taken in all that they were told."""
        told = [place for service, place in _TOLD.items() if service in up]
        found = await asyncio.gather(*(consumer_info(self._broker, *place) for place in told))
        return any(info is None or info["num_pending"] or info["num_ack_pending"] for info in found)

    async def _fetch(self, query: str, *arguments: Any) -> list[Any]:
        async with self._database.acquire() as connection:
            return list(await connection.fetch(query, *arguments))
