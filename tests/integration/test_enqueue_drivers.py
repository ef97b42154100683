"""`headway.enqueue` over the connections of common drivers."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from uuid import UUID

import asyncpg
import headway
import psycopg
import pytest
import pytest_asyncio
import sqlalchemy
from headway import App
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlalchemy_asyncio
from support.timeline import Timeline

pytestmark = pytest.mark.thorough

START_BY = datetime(2030, 1, 1, tzinfo=UTC)
GIVEN = {
    "group": "g",
    "priority": 4,
    "delay": 1.5,
    "start_by": START_BY,
    "key": "it's a key: 100 %",
}


@pytest_asyncio.fixture(autouse=True)
async def declared(database) -> None:
    app = App("shop")
    app.job("mail")(lambda ctx, given: None)
    await Timeline(database).declare(app)


def by_sqlalchemy(url: str, driver: str) -> str:
    return url.replace("postgresql://", f"postgresql+{driver}://")


@asynccontextmanager
async def over_asyncpg(url: str) -> AsyncIterator[object]:
    connection = await asyncpg.connect(url)
    await connection.set_type_codec(
        "jsonb", schema="pg_catalog", encoder=json.dumps, decoder=json.loads
    )
    async with connection.transaction():
        yield connection
    await connection.close()


@asynccontextmanager
async def over_an_asyncpg_pool(url: str) -> AsyncIterator[object]:
    async with asyncpg.create_pool(url, min_size=1) as pool, pool.acquire() as connection:
        yield connection


@asynccontextmanager
async def over_psycopg(url: str) -> AsyncIterator[object]:
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        yield connection


@asynccontextmanager
async def over_a_connection(url: str) -> AsyncIterator[object]:
    engine = sqlalchemy_asyncio.create_async_engine(by_sqlalchemy(url, "asyncpg"))
    async with engine.begin() as connection:
        yield connection
    await engine.dispose()


@asynccontextmanager
async def over_a_session(url: str) -> AsyncIterator[object]:
    engine = sqlalchemy_asyncio.create_async_engine(by_sqlalchemy(url, "psycopg"))
    async with sqlalchemy_asyncio.AsyncSession(engine) as session, session.begin():
        yield session
    await engine.dispose()


@contextmanager
def over_plain_psycopg(url: str):
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


@contextmanager
def over_a_plain_connection(url: str):
    engine = sqlalchemy.create_engine(by_sqlalchemy(url, "psycopg"))
    with engine.begin() as connection:
        yield connection
    engine.dispose()


@contextmanager
def over_a_plain_session(url: str):
    engine = sqlalchemy.create_engine(by_sqlalchemy(url, "psycopg"))
    with orm.Session(engine) as session, session.begin():
        yield session
    engine.dispose()


ASYNCHRONOUS = [
    over_asyncpg,
    over_an_asyncpg_pool,
    over_psycopg,
    over_a_connection,
    over_a_session,
]
PLAIN = [over_plain_psycopg, over_a_plain_connection, over_a_plain_session]


async def check(database, work: object, given: object) -> None:
    assert type(work) is UUID
    async with database.acquire() as connection:
        [row] = await connection.fetch("SELECT * FROM scheduler.enqueued")
    assert (row["work_id"], row["input"], row["group_name"]) == (work, given, "g")
    assert (row["priority"], row["delay"].total_seconds()) == (4, 1.5)
    assert row["start_by"] == START_BY


@pytest.mark.parametrize("given", [{"a": [1, "%s :x"], "b": None}, "text", [1, 2], False])
@pytest.mark.parametrize("over", ASYNCHRONOUS)
async def test_asynchronous_connections(database, database_url, over, given):
    async with over(database_url) as connection:
        work = await headway.enqueue(connection, "mail", given, **GIVEN)
    await check(database, work, given)


@pytest.mark.parametrize("given", [{"a": [1, "%s :x"], "b": None}, "text", [1, 2], False])
@pytest.mark.parametrize("over", PLAIN)
async def test_plain_connections(database, database_url, over, given):
    with over(database_url) as connection:
        work = headway.enqueue(connection, "mail", given, **GIVEN)
    await check(database, work, given)


@pytest.mark.parametrize("over", PLAIN)
async def test_a_rolled_back_transaction_enqueues_nothing(database, database_url, over):
    with pytest.raises(ZeroDivisionError), over(database_url) as connection:
        headway.enqueue(connection, "mail", 1)
        raise ZeroDivisionError
    async with database.acquire() as connection:
        assert await connection.fetchval("SELECT count(*) FROM scheduler.enqueued") == 0


async def test_an_unknown_connection_is_refused():
    with pytest.raises(TypeError, match=r"cannot enqueue over a builtins\.str: give a connection"):
        headway.enqueue("postgresql://somewhere", "mail")


async def test_a_time_without_a_zone_is_refused():
    with pytest.raises(ValueError, match=r"start_by=.* has no zone"):
        headway.enqueue(None, "mail", start_by=datetime(2030, 1, 1))
