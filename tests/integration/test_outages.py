"""Server outages: services recover without help."""

import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio
from headway import App, every
from headway_embedded import NatsServer, PostgresServer
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from support.apps import ticking
from support.invariants import check_invariants
from support.queries import DISABLE_ALL
from support.servers import TestPostgres, needs_embedded
from support.world import World


@pytest_asyncio.fixture
async def own_postgres():
    needs_embedded()
    with tempfile.TemporaryDirectory(prefix="headway-test-") as folder:
        server = PostgresServer(Path(folder))  # durable: committed data survives
        await server.start()
        yield server
        await server.stop()


@pytest_asyncio.fixture
async def own_nats(tmp_path):
    needs_embedded()
    server = NatsServer(tmp_path / "own-nats")
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def own_world(own_postgres, own_nats):
    """Return a world whose servers the test may stop."""
    servers = TestPostgres(own_postgres.url)
    await servers.prepare()
    url = await servers.new_database()
    await servers.close()
    database = await Database.connect(url, name="test")
    broker = await Broker.connect(own_nats.url, name="test")
    world = World(url, own_nats.url, database, broker)
    yield world
    await world.stop()
    await broker.close()
    await database.close()


@pytest.fixture
def app():
    return ticking()


async def completed(world) -> int:
    return await world.value("SELECT count(*) FROM dispatcher.run WHERE state = 'completed'")


async def wait_for_completions(world) -> None:
    """Wait until work that is created from now on completes."""
    before = await completed(world)
    await world.until(
        "SELECT count(*) >= $1 FROM dispatcher.run WHERE state = 'completed'",
        before + 2,
        within=40,
    )


async def stop_tick_and_settle(world, scheduler) -> None:
    await scheduler.end_pass("tick")
    await world.until_settled(within=45)
    await check_invariants(world.database)


async def start_services(world, app):
    await world.dispatcher(orphan_timeout_seconds=5)
    await world.worker(app)
    scheduler = await world.scheduler(app)
    await wait_for_completions(world)
    return scheduler


async def check_restarts(world, server, app) -> None:
    """Stop the server, and then kill it; work completes after each start."""
    scheduler = await start_services(world, app)
    for end in (server.stop, server.kill):
        await end()
        await server.start()
        await wait_for_completions(world)
    await stop_tick_and_settle(world, scheduler)


async def test_nats_restarts(own_world, own_nats, app):
    await check_restarts(own_world, own_nats, app)


async def test_postgres_restarts(own_world, own_postgres, app):
    await check_restarts(own_world, own_postgres, app)
    assert await own_world.value("SELECT count(*) FROM dispatcher.rejected") == 0


async def test_nats_comes_back_empty(own_world, own_nats, app):
    """Streams and consumers are created again, and new work flows."""
    await start_services(own_world, app)
    await own_nats.stop()
    shutil.rmtree(own_nats.folder / "nats")
    await own_nats.start()
    await own_world.value(DISABLE_ALL)
    new = App("after")

    @new.job("later", group="ops")
    @every(seconds=1)
    async def later(ctx): ...

    await own_world.worker(new)
    await own_world.scheduler(new)
    await own_world.until(
        "SELECT count(*) FROM dispatcher.run WHERE job = 'later' AND state = 'completed'",
        within=40,
    )
