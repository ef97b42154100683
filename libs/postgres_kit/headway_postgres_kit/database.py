"""A pool of connections with timeouts, JSON codecs and errors translated once."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import msgspec

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection

_JSONB_VERSION = b"\x01"

# What says that the server or the way to it is at fault, not the statement.
_OUTAGES = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.InvalidAuthorizationSpecificationError,
    asyncpg.exceptions.InvalidCatalogNameError,
    # Nobody's fault either: the same statement may well succeed the next time.
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.LockNotAvailableError,
)


class _Stateless(asyncpg.Connection):
    """A connection that need not be cleaned when it goes back to the pool.

    Locks, settings and cursors of ours end with their transaction, so the round trip that
    would reset them can be saved.
    """

    def get_reset_query(self) -> str:
        """What to run on release: nothing."""
        return ""


class DatabaseUnavailable(Exception):
    """PostgreSQL cannot be reached, went away in the middle, or asks to try again."""


class Database:
    """One database, by way of a pool. Made by `connect`."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", where: str) -> None:
        self._pool = pool
        self.where = where

    @classmethod
    async def connect(cls, url: str, *, name: str, max_connections: int = 10) -> "Database":
        """Open a pool, or say which server could not be reached and why."""
        where = describe_url(url)
        with _translated(where):
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=max_connections,
                timeout=5,
                command_timeout=30,
                max_inactive_connection_lifetime=300,
                server_settings={
                    "application_name": name,
                    "timezone": "UTC",
                    "idle_in_transaction_session_timeout": "60000",
                },
                init=_init_connection,
                connection_class=_Stateless,
            )
        return cls(pool, where)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A connection outside of a transaction."""
        with _translated(self.where):
            async with self._pool.acquire(timeout=10) as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside a READ COMMITTED transaction."""
        async with self.acquire() as connection, connection.transaction():
            yield connection

    async def ping(self) -> None:
        """Ask the server for a sign of life."""
        async with self.acquire() as connection:
            await connection.execute("SELECT 1", timeout=2)

    async def close(self) -> None:
        """Give back all connections; cut them off when they do not let go."""
        try:
            async with asyncio.timeout(5):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


class _translated:  # noqa: N801 - reads as a statement
    """Turn an outage, however the driver words it, into `DatabaseUnavailable`."""

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, _OUTAGES) and not isinstance(error, asyncpg.DataError):
            why = str(error) or type(error).__name__
            raise DatabaseUnavailable(f"{self.where}: {why}") from error


async def _init_connection(connection: Any) -> None:
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        format="binary",
        encoder=_encode_jsonb,
        decoder=_decode_jsonb,
    )


class Json(msgspec.Struct, frozen=True):
    """A value inside an array of jsonb; without it a list would look like a second dimension."""

    value: Any


def json_array(values: Iterable[Any]) -> list[Json | None]:
    """Values for a parameter of type jsonb[]; none becomes NULL."""
    return [None if value is None else Json(value) for value in values]


def _encode_jsonb(value: Any) -> bytes:
    return _JSONB_VERSION + msgspec.json.encode(value.value if isinstance(value, Json) else value)


def _decode_jsonb(data: bytes) -> Any:
    return msgspec.json.decode(memoryview(data)[1:])


def storable(text: str) -> str:
    """Text without the NUL characters that PostgreSQL does not store."""
    return text.replace("\x00", "\\0")


def describe_url(url: str) -> str:
    """The address without the secret, for messages."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2] or 'local socket'}{parts.path}"
