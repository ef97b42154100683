"""Answers by the key that a request came with, so that sending it again does nothing again.

The answer is kept in the transaction that does what was asked for: either both are there or
neither is. The same key with other parameters is somebody's mistake, and refused.
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
_FORGOTTEN_AT_ONCE = 1000


class Keyed(Protocol):
    """A request that may come with a key."""

    @property
    def key(self) -> str | None:
        """Who sends it again sends the same."""
        ...


Answer = TypeVar("Answer", bound=Struct)


class Answered:
    """The answers that one schema keeps."""

    def __init__(self, schema: str) -> None:
        self.queries = Queries("headway_service_kit", "answered.sql", schema=schema)

    async def once(
        self,
        connection: Connection,
        request: Keyed,
        answer: type[Answer],
        act: Callable[[], Awaitable[Answer]],
        *,
        now: datetime,
    ) -> Answer:
        """Act, unless the same was done before: then what was answered.

        Raises `Conflict` if the key came before with other parameters.
        """
        known = await self.recall(connection, request, answer)
        if known is not None:
            return known
        made = await act()
        await self.remember(connection, request, made, now=now)
        return made

    async def recall(
        self, connection: Connection, request: Keyed, answer: type[Answer]
    ) -> Answer | None:
        """What was answered to a request before; until the transaction ends nobody else acts."""
        if request.key is None:
            return None
        kind = _kind(request, answer)
        await connection.execute(self.queries["lock"], f"{kind} {request.key}")
        row = await connection.fetchrow(self.queries["recall"], kind, request.key)
        if row is None:
            return None
        if row["print"] != _print(request):
            raise Conflict(
                f"the key {request.key!r} was used at {row['answered_at']:%Y-%m-%d %H:%M:%S} UTC "
                "with other parameters: use another key, or the same parameters"
            )
        return msgspec.json.decode(row["answer"], type=answer)

    async def remember(
        self, connection: Connection, request: Keyed, made: Struct, *, now: datetime
    ) -> None:
        """Keep an answer, where the request has a key."""
        if request.key is not None:
            await connection.execute(
                self.queries["remember"],
                _kind(request, type(made)),
                request.key,
                _print(request),
                msgspec.json.encode(made),
                now,
            )

    async def forget(self, connection: Connection, *, now: datetime) -> None:
        """Forget a batch of answers that nobody will ask for again."""
        await connection.execute(self.queries["forget"], now - KEPT, _FORGOTTEN_AT_ONCE)


def _kind(request: Keyed, answer: type[Struct]) -> str:
    return f"{type(request).__name__}.{answer.__name__}"


def _print(request: Keyed) -> bytes:
    """Tells the same parameters from others, whoever sends them."""
    plain = {
        name: value
        for name, value in msgspec.to_builtins(request).items()
        if name not in ("key", "actor")
    }
    return hashlib.sha256(msgspec.json.encode(plain, order="sorted")).digest()
