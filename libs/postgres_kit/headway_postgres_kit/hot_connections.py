"""Connections that were just used, kept at hand for whoever wants one next.

To take a connection out of the pool and to give it back costs about as much as a small statement.
One that was used without trouble is as good as new, and is passed on by itself; the pool still
says how many there may be, and gets those back that nobody wants for a while.
"""

import asyncio
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]

# How long somebody may wait for a connection while all of them are taken.
_ACQUIRE_SECONDS = 10.0
# Those that nobody wanted for so long go back.
_IDLE_SECONDS = 60.0


class AtHand:
    """The connections at hand of one pool."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool = pool
        # The last one that was used is the first to be used again.
        self._free: list[Connection] = []
        self._waiting = 0
        # How many have lain there since the last look.
        self._unwanted = 0
        self._looking: asyncio.TimerHandle | None = None
        self._going: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._free)

    async def take(self) -> "Connection":
        """A connection, from here or from the pool."""
        while self._free:
            connection = self._free.pop()
            self._unwanted = min(self._unwanted, len(self._free))
            if _is_sound(connection):
                return connection
            await self._pool.release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=_ACQUIRE_SECONDS)
        finally:
            self._waiting -= 1

    async def give_back(self, connection: "Connection", *, sound: bool) -> None:
        """Keep a connection that was used without trouble, unless somebody waits at the pool."""
        if not sound or self._waiting or not _is_sound(connection):
            await self._pool.release(connection)
            return
        self._free.append(connection)
        if self._looking is None:
            self._look_later()

    async def clear(self) -> None:
        """Give all of them back."""
        if self._looking is not None:
            self._looking.cancel()
        while self._free:
            await self._pool.release(self._free.pop())
        if self._going:
            await asyncio.wait(self._going)

    def _look_later(self) -> None:
        self._unwanted = len(self._free)
        self._looking = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._look)

    def _look(self) -> None:
        unwanted, self._free = self._free[: self._unwanted], self._free[self._unwanted :]
        for connection in unwanted:
            task = asyncio.create_task(self._pool.release(connection))
            self._going.add(task)
            task.add_done_callback(self._going.discard)
        self._looking = None
        if self._free:
            self._look_later()


def _is_sound(connection: "Connection") -> bool:
    try:
        return not (connection.is_closed() or connection.is_in_transaction())
    except asyncpg.InterfaceError:
        # When it was closed, it went back to the pool by itself.
        return False
