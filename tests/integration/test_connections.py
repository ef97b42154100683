"""Connections of the pool: they are reused while they are healthy."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from headway_postgres_kit import Database, DatabaseUnavailable
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


async def test_a_failed_transaction_is_rolled_back(pool):
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with pool.acquire() as connection:
            await connection.execute("BEGIN; SELECT 1 / 0")
    async with pool.acquire() as connection:
        assert not connection.is_in_transaction()
        assert await connection.fetchval("SELECT 1") == 1


async def test_a_transaction_that_was_left_open_is_rolled_back(pool):
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


async def test_closing_ends_as_soon_as_the_last_connection_is_free(pool):
    async with pool.acquire():
        closing = asyncio.create_task(pool.close())
        await asyncio.sleep(0)
        assert not closing.done()
    # Well below the five seconds after which `close` terminates connections.
    await asyncio.wait_for(closing, 3)
