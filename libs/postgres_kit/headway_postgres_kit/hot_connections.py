"""Reuses connections without returning them to the pool in between.

Acquiring and releasing a pooled connection costs about as much as a small statement. The pool
still limits how many connections there are, and gets back idle ones after a while.
"""

import asyncio
from typing import TYPE_CHECKING

import asyncpg

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection

# How long to wait for a connection while all are in use.
_ACQUIRE_SECONDS = 10.0
# Idle connections go back to the pool after this time.
_IDLE_SECONDS = 60.0


class HotConnections:
    """The recently used connections of one pool."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]") -> None:
        self._pool = pool
        self._free: list[Connection] = []
        self._waiting = 0
        self._closing = False
        # How many were idle since the last check.
        self._idle = 0
        self._timer: asyncio.TimerHandle | None = None
        self._releasing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._free)

    async def take(self) -> Connection:
        """Return a connection, recently used or from the pool."""
        while self._free:
            connection = self._free.pop()
            self._idle = min(self._idle, len(self._free))
            if _is_sound(connection):
                return connection
            await self._pool.release(connection)
        self._waiting += 1
        try:
            return await self._pool.acquire(timeout=_ACQUIRE_SECONDS)
        finally:
            self._waiting -= 1

    async def give_back(self, connection: Connection, *, sound: bool) -> None:
        """Keep a sound connection, unless another task waits at the pool."""
        if not sound or self._waiting or self._closing or not _is_sound(connection):
            await self._pool.release(connection)
            return
        self._free.append(connection)
        if self._timer is None:
            self._schedule_check()

    async def clear(self) -> None:
        """Release all connections to the pool, and from now on each that is given back."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        while self._free:
            await self._pool.release(self._free.pop())
        if self._releasing:
            await asyncio.wait(self._releasing)

    def _schedule_check(self) -> None:
        self._idle = len(self._free)
        self._timer = asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._release_idle)

    def _release_idle(self) -> None:
        idle, self._free = self._free[: self._idle], self._free[self._idle :]
        for connection in idle:
            task = asyncio.create_task(self._pool.release(connection))
            self._releasing.add(task)
            task.add_done_callback(self._releasing.discard)
        self._timer = None
        if self._free:
            self._schedule_check()


def _is_sound(connection: Connection) -> bool:
    try:
        return not (connection.is_closed() or connection.is_in_transaction())
    except asyncpg.InterfaceError:
        # A closed connection went back to the pool by itself.
        return False
