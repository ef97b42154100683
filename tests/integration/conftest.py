"""Fixtures that several of these tests ask for."""

import asyncpg
import pytest_asyncio
from support.letters import Ops


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
