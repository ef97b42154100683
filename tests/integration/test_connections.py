"""Hot connections: they are reused without the pool while they are healthy."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from headway_postgres_kit import Database, DatabaseUnavailable, hot_connections
from support.world import until

pytestmark = pytest.mark.thorough

PID = "SELECT pg_backend_pid()"


@pytest_asyncio.fixture
async def pool(database_url: str) -> AsyncIterator[Database]:
    """A database client with at most two connections."""
    database = await Database.connect(database_url, name="test", max_connections=2)
    yield database
    await database.close()


async def pid(database: Database) -> int:
    async with database.acquire() as connection:
        return await connection.fetchval(PID)


async def test_the_last_used_connection_is_used_again(pool):
    async with pool.acquire() as first, pool.acquire() as second:
        assert await first.fetchval(PID) != await second.fetchval(PID)
        last = await first.fetchval(PID)
        assert pool.connections_in_use == 2
    assert pool.connections_in_use == 0
    assert [await pid(pool) for _ in range(3)] == [last] * 3
    assert pool.connections == 2


async def test_waiting_users_get_the_next_free_connection(pool):
    async def use(done: asyncio.Event) -> None:
        async with pool.acquire():
            await done.wait()

    ends = [asyncio.Event() for _ in range(6)]
    users = [asyncio.create_task(use(done)) for done in ends]
    for done, user in zip(ends, users, strict=True):
        done.set()
        await asyncio.wait_for(user, 5)
    assert pool.connections == 2
    assert pool.connections_in_use == 0


async def test_a_connection_with_an_error_returns_to_the_pool(pool):
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with pool.acquire() as connection:
            await connection.execute("BEGIN; SELECT 1 / 0")
    async with pool.acquire() as connection:
        assert not connection.is_in_transaction()
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_connection_in_a_transaction_is_not_reused(pool):
    async with pool.acquire() as connection:
        await connection.execute("BEGIN; CREATE TEMPORARY TABLE left_behind ()")
    async with pool.acquire() as connection:
        assert not connection.is_in_transaction()
        assert await connection.fetchval("SELECT to_regclass('left_behind')") is None


async def test_a_terminated_connection_is_replaced(pool, database):
    ended = await pid(pool)
    async with database.acquire() as other:
        await other.execute("SELECT pg_terminate_backend($1)", ended)

    async def works_again() -> bool:
        try:
            return await pid(pool) != ended
        except DatabaseUnavailable:
            return False

    await until(works_again, within=5, what="another connection")


async def test_idle_connections_return_to_the_pool(pool, monkeypatch):
    monkeypatch.setattr(hot_connections, "_IDLE_SECONDS", 0.01)
    async with pool.acquire(), pool.acquire():
        assert pool.connections_in_use == 2
    assert len(pool._hot) == 2

    async def are_back() -> bool:
        return len(pool._hot) == 0 and pool.connections_in_use == 0

    await until(are_back, within=5, what="connections back in the pool")
    assert await pid(pool)


async def test_a_recently_used_connection_stays_hot(pool):
    async with pool.acquire(), pool.acquire():
        pass
    pool._hot._release_idle()
    wanted = await pid(pool)
    pool._hot._release_idle()
    assert len(pool._hot) == 1
    assert await pid(pool) == wanted


async def test_closing_ends_as_soon_as_the_last_connection_is_free(pool):
    async with pool.acquire():
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        assert not closing.done()
    # Well below the five seconds after which `close` terminates connections.
    await asyncio.wait_for(closing, 3)
    assert len(pool._hot) == 0
