"""Stores answers by idempotency key, so that a repeated request acts only once.

The answer is stored in the transaction that carries out the request. A known key with other
parameters is rejected.
"""

import hashlib
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

import msgspec
from headway_errors import Conflict
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

KEPT = timedelta(days=7)
_PURGE_BATCH = 1000


class Keyed(Protocol):
    """A request with an optional key."""

    @property
    def key(self) -> str | None:
        """Return the idempotency key."""
        ...


Answer = TypeVar("Answer", bound=Struct)


class IdempotencyStore:
    """The stored answers of one schema."""

    def __init__(self, schema: str) -> None:
        self.queries = Queries("headway_service_kit", "answered.sql", schema=schema)

    async def run_once(
        self,
        connection: Connection,
        request: Keyed,
        answer: type[Answer],
        act: Callable[[], Awaitable[Answer]],
        *,
        now: datetime,
    ) -> Answer:
        """Act and store the answer, or return the stored one, or raise `Conflict` like `lookup`."""
        known = await self.lookup(connection, request, answer)
        if known is not None:
            return known
        result = await act()
        await self.store(connection, request, result, now=now)
        return result

    async def lookup(
        self, connection: Connection, request: Keyed, answer: type[Answer]
    ) -> Answer | None:
        """Return the stored answer, or `None`; lock the key until the transaction ends."""
        if request.key is None:
            return None
        kind = _kind(request, answer)
        await connection.execute(self.queries["lock"], f"{kind} {request.key}")
        row = await connection.fetchrow(self.queries["lookup"], kind, request.key)
        if row is None:
            return None
        if row["print"] != _digest(request):
            raise Conflict(
                f"the key {request.key!r} was used at {row['answered_at']:%Y-%m-%d %H:%M:%S} UTC "
                "with other parameters: use another key, or the same parameters"
            )
        return msgspec.json.decode(row["answer"], type=answer)

    async def store(
        self, connection: Connection, request: Keyed, answer: Struct, *, now: datetime
    ) -> None:
        """Store an answer if the request has a key."""
        if request.key is not None:
            await connection.execute(
                self.queries["store"],
                _kind(request, type(answer)),
                request.key,
                _digest(request),
                msgspec.json.encode(answer),
                now,
            )

    async def purge(self, connection: Connection, *, now: datetime) -> None:
        """Delete a batch of expired answers."""
        await connection.execute(self.queries["purge"], now - KEPT, _PURGE_BATCH)


def _kind(request: Keyed, answer: type[Struct]) -> str:
    return f"{type(request).__name__}.{answer.__name__}"


def _digest(request: Keyed) -> bytes:
    """Return a digest of the parameters, without key and actor."""
    plain = {
        name: value
        for name, value in msgspec.to_builtins(request).items()
        if name not in ("key", "actor")
    }
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).digest()
