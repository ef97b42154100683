"""Detect connection poolers that share a server's session between clients.

PostgreSQL sends each client its backend's process id when it connects. A pooler sends another id,
so `pg_backend_pid()` differs from it. Such a pooler is accepted as long as a client keeps its
backend: two clients that are connected at the same time never see the same backend, and each sees
its own again. PgBouncer's `pool_mode=session` does this; `transaction` and `statement` send each
statement to any free backend.
"""

from contextlib import AsyncExitStack

import asyncpg

_SECONDS = 5.0
_ROUNDS = 3


class SessionsShared(Exception):
    """Statements of one connection reach several sessions, which lack its settings."""

    def __init__(self, where: str) -> None:
        self.found = (
            f"{where}: a connection pooler shares sessions of PostgreSQL between its clients, as "
            "PgBouncer does with pool_mode=transaction, but Headway needs its own sessions"
        )
        self.remedy = "give the address of PostgreSQL itself, or of a pool with pool_mode=session"
        super().__init__(f"{self.found}; {self.remedy}")


async def refuse_shared_sessions(url: str, where: str) -> None:
    """Raise `SessionsShared` if statements of a connection reach several backends."""
    async with AsyncExitStack() as stack:
        first = await _connect(stack, url)
        if await _backend(first) == first.get_server_pid():
            return
        second = await _connect(stack, url)
        try:
            seen = [(await _backend(first), await _backend(second)) for _ in range(_ROUNDS)]
        except asyncpg.InvalidSQLStatementNameError:
            seen = []  # prepared on one backend, executed on another
        if len(set(seen)) != 1 or seen[0][0] == seen[0][1]:
            raise SessionsShared(where)


async def _connect(stack: AsyncExitStack, url: str) -> "asyncpg.Connection[asyncpg.Record]":
    # Without a cache statements have no names, which would clash on a shared backend.
    connection = await asyncpg.connect(url, timeout=_SECONDS, statement_cache_size=0)
    stack.push_async_callback(connection.close, timeout=_SECONDS)
    return connection


async def _backend(connection: "asyncpg.Connection[asyncpg.Record]") -> int:
    number: int = await connection.fetchval("SELECT pg_backend_pid()", timeout=_SECONDS)
    return number
