"""Connections at hand: passed on without the pool, as long as nothing is wrong with them."""

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
async def two(database_url: str) -> AsyncIterator[Database]:
    """A database of which two connections may be open."""
    database = await Database.connect(database_url, name="test", max_connections=2)
    yield database
    await database.close()


async def pid(database: Database) -> int:
    async with database.acquire() as connection:
        return await connection.fetchval(PID)


async def test_the_last_one_that_was_used_is_used_again(two):
    async with two.acquire() as first, two.acquire() as second:
        assert await first.fetchval(PID) != await second.fetchval(PID)
        last = await first.fetchval(PID)
        assert two.connections_in_use == 2
    assert two.connections_in_use == 0
    assert [await pid(two) for _ in range(3)] == [last] * 3
    assert two.connections == 2


async def test_whoever_waits_at_the_pool_gets_the_next_that_is_free(two):
    async def use(done: asyncio.Event) -> None:
        async with two.acquire():
            await done.wait()

    ends = [asyncio.Event() for _ in range(6)]
    users = [asyncio.create_task(use(done)) for done in ends]
    for done, user in zip(ends, users, strict=True):
        done.set()
        await asyncio.wait_for(user, 5)
    assert two.connections == 2
    assert two.connections_in_use == 0


async def test_one_that_had_trouble_goes_back_to_the_pool(two):
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with two.acquire() as connection:
            await connection.execute("BEGIN; SELECT 1 / 0")
    async with two.acquire() as connection:
        assert not connection.is_in_transaction()
        assert await connection.fetchval("SELECT 1") == 1


async def test_one_that_is_left_in_a_transaction_is_not_passed_on(two):
    async with two.acquire() as connection:
        await connection.execute("BEGIN; CREATE TEMPORARY TABLE left_behind ()")
    async with two.acquire() as connection:
        assert not connection.is_in_transaction()
        assert await connection.fetchval("SELECT to_regclass('left_behind')") is None


async def test_one_that_the_server_has_ended_is_replaced(two, database):
    ended = await pid(two)
    async with database.acquire() as other:
        await other.execute("SELECT pg_terminate_backend($1)", ended)

    async def works_again() -> bool:
        try:
            return await pid(two) != ended
        except DatabaseUnavailable:
            return False

    await until(works_again, within=5, what="another connection")


async def test_those_that_nobody_wants_go_back(two, monkeypatch):
    monkeypatch.setattr(hot_connections, "_IDLE_SECONDS", 0.01)
    async with two.acquire(), two.acquire():
        assert two.connections_in_use == 2
    assert len(two._hot) == 2

    async def are_back() -> bool:
        return len(two._hot) == 0 and two.connections_in_use == 0

    await until(are_back, within=5, what="connections back in the pool")
    assert await pid(two)


async def test_one_that_was_wanted_stays(two):
    async with two.acquire(), two.acquire():
        pass
    two._hot._release_idle()
    wanted = await pid(two)
    two._hot._release_idle()
    assert len(two._hot) == 1
    assert await pid(two) == wanted


async def test_closing_ends_as_soon_as_the_last_connection_is_free(two):
    async with two.acquire():
        closing = asyncio.create_task(two.close())
        await asyncio.sleep(0)
        assert not closing.done()
    # Well below the five seconds after which `close` cuts connections off.
    await asyncio.wait_for(closing, 3)
    assert len(two._hot) == 0
