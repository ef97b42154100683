"""A pool of connections with timeouts, JSON codecs and errors translated once.

Nothing waits for ever. A lock is waited for for a third of the time that an answer may take, and
a statement runs for five sixths of it: then the server itself ends it, lets go of its locks and
says so. A server that says nothing at all is given up after the whole of it. A backend that a
client has left in the middle of a transaction ends after a while, and lets go of its locks, too.
"""

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg
import msgspec

from headway_postgres_kit.clock import DATABASE_CLOCK, Clock
from headway_postgres_kit.hot_connections import HotConnections
from headway_postgres_kit.poolers import refuse_shared_sessions

if TYPE_CHECKING:
    from asyncpg.pool import PoolConnectionProxy

    Connection = PoolConnectionProxy[asyncpg.Record]
else:
    Connection = asyncpg.Connection

# Writes more in a transaction that is about to commit, by what was noted in it.
BeforeCommit = Callable[[Connection, list[Any]], Awaitable[None]]

_JSONB_VERSION = b"\x01"

# How long PostgreSQL may take for an answer.
ANSWER_SECONDS = 30.0
_PING_SECONDS = 2.0
# How long a transaction may rest between two statements; longer than any publish takes.
_IDLE_IN_TRANSACTION_SECONDS = 20.0
# A peer that is gone without a word is noticed after some 25 s, on either side.
_KEEPALIVE = {"idle": 10, "interval": 5, "count": 3}
_UNACKNOWLEDGED_SECONDS = 25

# $1 names, $2 values of settings that hold for the session.
_SET_SESSION = """
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS given (name, value)
"""

# What says that the server or the way to it is at fault, not the statement.
_OUTAGES = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    # A connection that the server has just ended, taken before its end was seen.
    asyncpg.InternalClientError,
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


# What was noted in the transaction around.
_NOTED: ContextVar[list[Any] | None] = ContextVar("noted", default=None)


def note(*facts: object) -> None:
    """Note what comes true with the transaction around: its database's `on_commit` is told then.

    What is rolled back is told to nobody, and outside of a transaction nothing is noted.
    """
    noted = _NOTED.get()
    if noted is not None:
        noted.extend(facts)


@asynccontextmanager
async def savepoint(connection: Connection) -> AsyncIterator[None]:
    """A part of a transaction, of any kind, that is undone alone if a statement in it fails."""
    await connection.execute("SAVEPOINT part")
    try:
        yield
    except asyncpg.PostgresError:
        await connection.execute("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
        raise
    await connection.execute("RELEASE SAVEPOINT part")


class DatabaseUnavailable(Exception):
    """PostgreSQL cannot be reached, went away in the middle, or asks to try again."""


class Database:
    """One database, by way of a pool. Made by `connect`."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", where: str) -> None:
        self._pool = pool
        self._hot = HotConnections(pool)
        self._pinging: asyncio.Task[None] | None = None
        self.where = where
        # The source of schedule time; tests set their own.
        self.clock: Clock = DATABASE_CLOCK
        # Told what was noted in a transaction, once it is committed.
        self.on_commit: Callable[[list[Any]], None] | None = None
        # Told the same just before, so that it can write more in the transaction.
        self.before_commit: BeforeCommit | None = None

    @classmethod
    async def connect(
        cls,
        url: str,
        *,
        name: str,
        max_connections: int = 10,
        answer_seconds: float = ANSWER_SECONDS,
        settings: Mapping[str, str] | None = None,
    ) -> "Database":
        """Open a pool, or say which server could not be reached and why.

        `settings` are further ones of the session, such as the role that it takes on.
        """
        where = describe_url(url)
        session = {**_limits(answer_seconds), **(settings or {})}
        with _translated(where):
            await refuse_shared_sessions(url, where)
            pool = await asyncpg.create_pool(
                url,
                min_size=1,
                max_size=max_connections,
                timeout=5,
                command_timeout=answer_seconds,
                max_inactive_connection_lifetime=300,
                server_settings={"application_name": name, "timezone": "UTC"},
                init=functools.partial(_init_connection, settings=session),
                connection_class=_Stateless,
            )
        return cls(pool, where)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[Connection]:
        """A connection outside of a transaction."""
        with _translated(self.where):
            connection = await self._hot.take()
            try:
                yield connection
            except BaseException:
                # Also if it was cancelled: a statement may be half done, which the pool clears up.
                await self._hot.give_back(connection, sound=False)
                raise
            await self._hot.give_back(connection, sound=True)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection inside a READ COMMITTED transaction; what is noted in it is told after."""
        with self._noting() as noted:
            async with self.acquire() as connection, connection.transaction():
                yield connection
                await self._prepare_commit(connection, noted)

    @asynccontextmanager
    async def locked_transaction(
        self, key: int, *, shared: bool = False
    ) -> AsyncIterator[Connection]:
        """The same with an advisory lock from its beginning on, in one round trip.

        What its statements read is never older than the lock. Its savepoints are `savepoint`s.
        """
        lock = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        with self._noting() as noted:
            async with self.acquire() as connection:
                try:
                    await connection.execute(f"BEGIN; SELECT {lock}({key:d})")
                    yield connection
                    await self._prepare_commit(connection, noted)
                except BaseException:
                    if not connection.is_closed():
                        await connection.execute("ROLLBACK")
                    raise
                await connection.execute("COMMIT")

    async def _prepare_commit(self, connection: Connection, noted: list[Any]) -> None:
        if noted and self.before_commit is not None:
            await self.before_commit(connection, noted)

    @contextmanager
    def _noting(self) -> Iterator[list[Any]]:
        """Keep what is noted until the end, and tell it if that is a good one."""
        noted: list[Any] = []
        # Set back by hand: whoever begins and ends it may do so in two contexts.
        around = _NOTED.get()
        _NOTED.set(noted)
        try:
            yield noted
        finally:
            _NOTED.set(around)
        if noted and self.on_commit is not None:
            self.on_commit(noted)

    async def ping(self) -> None:
        """Ask the server for a sign of life; a question that hangs is not asked again meanwhile."""
        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(self._ping())
            self._pinging.add_done_callback(_take_note)
        done, _ = await asyncio.wait({self._pinging}, timeout=_PING_SECONDS)
        if not done:
            raise DatabaseUnavailable(f"{self.where}: no answer within {_PING_SECONDS:g} s")
        self._pinging.result()

    async def _ping(self) -> None:
        async with self.acquire() as connection:
            await connection.execute("SELECT 1", timeout=_PING_SECONDS)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._pool.get_size()

    @property
    def connections_in_use(self) -> int:
        """How many of them somebody has taken."""
        return self._pool.get_size() - self._pool.get_idle_size() - len(self._hot)

    async def close(self) -> None:
        """Give back all connections; cut them off when they do not let go."""
        if self._pinging is not None:
            self._pinging.cancel()
        try:
            async with asyncio.timeout(5):
                await self._hot.clear()
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
            raise DatabaseUnavailable(f"{self.where}: {_reason(error)}") from error


def _take_note(ping: "asyncio.Task[None]") -> None:
    """A ping that nobody waits for any more may fail, too; the loop would complain at its end."""
    if not ping.cancelled():
        ping.exception()


def _reason(error: BaseException) -> str:
    """What went wrong first: a roll-back over a dead connection fails for no reason of its own."""
    while isinstance(error, asyncpg.InterfaceError) and isinstance(error.__context__, _OUTAGES):
        error = error.__context__
    return str(error) or ("no answer" if isinstance(error, TimeoutError) else type(error).__name__)


def _limits(answer_seconds: float) -> dict[str, str]:
    """Settings of a session that keep the server from waiting for ever; times in ms."""
    return {
        "statement_timeout": f"{answer_seconds * 5 / 6 * 1000:.0f}",
        "lock_timeout": f"{answer_seconds / 3 * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{_IDLE_IN_TRANSACTION_SECONDS * 1000:.0f}",
        "tcp_keepalives_idle": f"{_KEEPALIVE['idle']}",
        "tcp_keepalives_interval": f"{_KEEPALIVE['interval']}",
        "tcp_keepalives_count": f"{_KEEPALIVE['count']}",
        "tcp_user_timeout": f"{_UNACKNOWLEDGED_SECONDS * 1000}",
    }


async def _init_connection(connection: Any, settings: Mapping[str, str]) -> None:
    _keep_alive(connection._transport.get_extra_info("socket"))  # noqa: SLF001 - no other way
    # By a statement: a pooler refuses most settings in the message that opens a connection.
    await connection.execute(_SET_SESSION, list(settings), list(settings.values()))
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        format="binary",
        encoder=_encode_jsonb,
        decoder=_decode_jsonb,
    )


def _keep_alive(link: socket.socket) -> None:
    """Let the kernel notice a peer that is gone without a word."""
    if link.family not in (socket.AF_INET, socket.AF_INET6):
        return
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", _KEEPALIVE["idle"]),
        ("TCP_KEEPINTVL", _KEEPALIVE["interval"]),
        ("TCP_KEEPCNT", _KEEPALIVE["count"]),
        ("TCP_USER_TIMEOUT", _UNACKNOWLEDGED_SECONDS * 1000),
    ):
        if hasattr(socket, option):  # not every system has all of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


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
