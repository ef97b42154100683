"""Fixtures that several of these tests ask for."""

import asyncpg
import pytest_asyncio
from headway_console.reading import connect_reader
from support.desks import Desk, open_desk
from support.gates import Gates, SetClock
from support.letters import Ops
from support.timeline import Timeline


@pytest_asyncio.fixture
async def timeline(database) -> Timeline:
    """The scheduler's decisions under a clock that the test sets; nothing is declared."""
    return Timeline(database)


@pytest_asyncio.fixture
async def clock() -> SetClock:
    """The clock of `gates`."""
    return SetClock()


@pytest_asyncio.fixture
async def gates(database, clock) -> Gates:
    """The dispatcher's gate, with a worker for the jobs `etl` and `mail`."""
    made = Gates(database, clock=clock, max_active=100)
    await made.watch_caps()
    await made.worker("etl", "mail")
    return made


@pytest_asyncio.fixture
async def desk(world) -> Desk:
    """The dispatcher's side of leases; the reaper is too slow to interfere."""
    return await open_desk(world, orphan_timeout_seconds=600)


@pytest_asyncio.fixture
async def client(world):
    """A client of the services that the test starts."""
    async with world.client("ada") as made:
        yield made


@pytest_asyncio.fixture
async def ops(world):
    await world.dispatcher()
    async with world.client("ada") as client:
        made = Ops(world, client)
        await world.worker(made.app, worker_name="w1")
        yield made
        made.hold.set()


@pytest_asyncio.fixture
async def application(database_url, database):
    """A connection of an application, which has set up JSON in its own way."""
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def reader(database_url):
    """A connection of the console's role, which only reads."""
    pool = await connect_reader(database_url)
    async with pool.acquire() as connection:
        yield connection
    await pool.close()
