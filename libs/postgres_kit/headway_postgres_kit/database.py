"""A pool of connections with timeouts, JSON codecs and translated errors.

Every wait is limited. The longest wait for a lock is a third of the time that an answer may take,
and for a statement five sixths: then the server cancels it, releases its locks and reports it. A
connection to a silent server is closed after the whole time. The server ends a session that stays
idle in a transaction, and so releases its locks.
"""

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import msgspec

from headway_postgres_kit.driver import Connection
from headway_postgres_kit.poolers import refuse_shared_sessions

# Writes to a transaction that is about to commit, from the facts that were noted in it.
BeforeCommit = Callable[[Connection, list[Any]], Awaitable[None]]

_JSONB_VERSION = b"\x01"

# Longest wait for an answer of PostgreSQL.
ANSWER_SECONDS = 30.0
_PING_SECONDS = 2.0
# Longest wait for a connection while all are in use.
_ACQUIRE_SECONDS = 10.0
# Longest pause between two statements of a transaction; longer than any publish takes.
_IDLE_IN_TRANSACTION_SECONDS = 20.0
# Either side detects a dead peer after some 25 s: the server's setting, the option of the client's
# socket, and the value of both.
_KEEPALIVE = (
    ("tcp_keepalives_idle", "TCP_KEEPIDLE", 10),
    ("tcp_keepalives_interval", "TCP_KEEPINTVL", 5),
    ("tcp_keepalives_count", "TCP_KEEPCNT", 3),
    ("tcp_user_timeout", "TCP_USER_TIMEOUT", 25_000),
)

# $1 names and $2 values of settings of the session.
_SET_SESSION = """
SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS given (name, value)
"""

# Errors of the server or of the network, not of the statement.
_OUTAGES = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    # The server has ended the connection, and the client has not noticed before its use.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.InvalidAuthorizationSpecificationError,
    asyncpg.exceptions.InvalidCatalogNameError,
    # The same statement may succeed the next time.
    asyncpg.exceptions.TransactionRollbackError,
    asyncpg.exceptions.LockNotAvailableError,
)


class _Stateless(asyncpg.Connection):
    """A connection that is not reset when it returns to the pool.

    Our locks, settings and cursors end with their transaction, so this saves a round trip.
    """

    def get_reset_query(self) -> str:
        """Return the statement to run on release: none."""
        return ""


# The facts that were noted in the current transaction.
_NOTED: ContextVar[list[Any] | None] = ContextVar("noted", default=None)


def note(*facts: object) -> None:
    """Pass facts to `on_commit` if the current transaction commits; outside of one do nothing."""
    noted = _NOTED.get()
    if noted is not None:
        noted.extend(facts)


@asynccontextmanager
async def savepoint(connection: Connection) -> AsyncIterator[None]:
    """Run a part of any transaction, and roll it back alone if a statement in it fails."""
    await connection.execute("SAVEPOINT part")
    try:
        yield
    except asyncpg.PostgresError:
        await connection.execute("ROLLBACK TO SAVEPOINT part; RELEASE SAVEPOINT part")
        raise
    await connection.execute("RELEASE SAVEPOINT part")


class DatabaseUnavailable(Exception):
    """PostgreSQL is unreachable, closed the connection, or rejected a statement for now."""


class Clock:
    """Schedule time: PostgreSQL's own clock, the same for every process."""

    async def now(self, connection: Connection) -> datetime:
        """Read the server's wall clock; call it after the transaction has taken its locks."""
        now: datetime = await connection.fetchval("SELECT clock_timestamp()")
        return now

    def passed(self, measured: timedelta) -> timedelta:
        """Convert a duration that PostgreSQL measured to a duration of this clock."""
        return measured


DATABASE_CLOCK = Clock()


class Database:
    """A pool of connections to a database; create it with `connect`."""

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", where: str) -> None:
        self._pool = pool
        self._pinging: asyncio.Task[None] | None = None
        self.where = where
        # The source of schedule time; tests set their own.
        self.clock: Clock = DATABASE_CLOCK
        # Called with the facts that were noted in a transaction after its commit.
        self.on_commit: Callable[[list[Any]], None] | None = None
        # Called with the same facts just before the commit, to write more in the transaction.
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
        """Open a pool, or raise `DatabaseUnavailable` with the server and the reason.

        `settings` are additional session settings, such as the role.
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
        """Yield a connection outside of a transaction."""
        with _translated(self.where):
            async with self._pool.acquire(timeout=_ACQUIRE_SECONDS) as connection:
                yield connection

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Yield a connection inside a READ COMMITTED transaction."""
        with self._noting() as noted:
            async with self.acquire() as connection, connection.transaction():
                yield connection
                await self._before_commit(connection, noted)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """Yield a connection inside a read-only transaction whose statements read one state."""
        async with (
            self.acquire() as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection

    @asynccontextmanager
    async def locked_transaction(
        self, key: int, *, shared: bool = False
    ) -> AsyncIterator[Connection]:
        """Begin a transaction and take an advisory lock in one round trip.

        Its statements read nothing older than the lock. For savepoints in it use `savepoint`.
        """
        lock = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        with self._noting() as noted:
            async with self.acquire() as connection:
                try:
                    await connection.execute(f"BEGIN; SELECT {lock}({key:d})")
                    yield connection
                    await self._before_commit(connection, noted)
                except BaseException:
                    if not connection.is_closed():
                        await connection.execute("ROLLBACK")
                    raise
                await connection.execute("COMMIT")

    async def _before_commit(self, connection: Connection, noted: list[Any]) -> None:
        if noted and self.before_commit is not None:
            await self.before_commit(connection, noted)

    @contextmanager
    def _noting(self) -> Iterator[list[Any]]:
        """Collect the facts that are noted, and pass them on after a commit."""
        noted: list[Any] = []
        # Not by token: the transaction may begin and end in different contexts.
        around = _NOTED.get()
        _NOTED.set(noted)
        try:
            yield noted
        finally:
            _NOTED.set(around)
        if noted and self.on_commit is not None:
            self.on_commit(noted)

    async def ping(self) -> None:
        """Raise `DatabaseUnavailable` if the server does not answer; a hanging ping is reused."""

        async def select() -> None:
            async with self.acquire() as connection:
                await connection.execute("SELECT 1", timeout=_PING_SECONDS)

        if self._pinging is None or self._pinging.done():
            self._pinging = asyncio.create_task(select())
            # Retrieved, so that the event loop does not warn of a ping that fails after a timeout.
            self._pinging.add_done_callback(lambda ping: ping.cancelled() or ping.exception())
        done, _ = await asyncio.wait({self._pinging}, timeout=_PING_SECONDS)
        if not done:
            raise DatabaseUnavailable(f"{self.where}: no answer within {_PING_SECONDS:g} s")
        self._pinging.result()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._pool.get_size()

    @property
    def connections_in_use(self) -> int:
        """The number of connections in use."""
        return self._pool.get_size() - self._pool.get_idle_size()

    async def close(self) -> None:
        """Close all connections, after a timeout by force."""
        if self._pinging is not None:
            self._pinging.cancel()
        try:
            async with asyncio.timeout(5):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Translate the driver's errors of an outage to `DatabaseUnavailable`."""
    try:
        yield
    except _OUTAGES as error:
        if isinstance(error, asyncpg.DataError):
            raise
        raise DatabaseUnavailable(f"{where}: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    """Return the first error: a rollback over a dead connection hides it with another."""
    while isinstance(error, asyncpg.InterfaceError) and isinstance(error.__context__, _OUTAGES):
        error = error.__context__
    return str(error) or ("no answer" if isinstance(error, TimeoutError) else type(error).__name__)


def _limits(answer_seconds: float) -> dict[str, str]:
    """Return the session settings that limit the server's waits; times in ms."""
    return {
        "statement_timeout": f"{answer_seconds * 5 / 6 * 1000:.0f}",
        "lock_timeout": f"{answer_seconds / 3 * 1000:.0f}",
        "idle_in_transaction_session_timeout": f"{_IDLE_IN_TRANSACTION_SECONDS * 1000:.0f}",
        **{setting: str(value) for setting, _, value in _KEEPALIVE},
    }


async def _init_connection(connection: Any, settings: Mapping[str, str]) -> None:
    _keep_alive(connection._transport.get_extra_info("socket"))  # noqa: SLF001 - no other way
    # By a statement: a pooler rejects most settings in the message that opens a connection.
    await connection.execute(_SET_SESSION, list(settings), list(settings.values()))
    await connection.set_type_codec(
        "jsonb",
        schema="pg_catalog",
        format="binary",
        encoder=_encode_jsonb,
        decoder=lambda data: msgspec.json.decode(memoryview(data)[1:]),
    )


def _keep_alive(link: socket.socket) -> None:
    """Let the kernel detect a dead peer."""
    if link.family not in (socket.AF_INET, socket.AF_INET6):
        return
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for _, option, value in _KEEPALIVE:
        if hasattr(socket, option):  # some systems lack some of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


class Json(msgspec.Struct, frozen=True):
    """An element of a jsonb array; a bare list would be taken for a second dimension."""

    value: Any


def json_array(values: Iterable[Any]) -> list[Json | None]:
    """Return values for a parameter of type jsonb[]; `None` becomes NULL."""
    return [None if value is None else Json(value) for value in values]


def _encode_jsonb(value: Any) -> bytes:
    return _JSONB_VERSION + msgspec.json.encode(value.value if isinstance(value, Json) else value)


def storable(text: str) -> str:
    """Replace NUL characters, which PostgreSQL does not store."""
    return text.replace("\x00", "\\0")


def describe_url(url: str) -> str:
    """Return the address without the secret, for messages."""
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2] or 'local socket'}{parts.path}"
