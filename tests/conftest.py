"""Fixtures that every kind of test may ask for."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
import uvloop
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from hypothesis import settings
from support.consoles import LOCAL, Console, run_console
from support.invariants import broken_invariants
from support.promises import promised_tests
from support.servers import TestNats, TestPostgres, run_nats, run_postgres
from support.world import World

# How long an example takes says something about the machine, and nothing about the code.
settings.register_profile("headway", deadline=None)
settings.load_profile("headway")


MEMORY_DISK = Path("/dev/shm")
MEMORY_NEEDED = 4 * 1024**3


def pytest_configure() -> None:
    """Keep temporary files in memory where there is room.

    A database is some 700 files. A journaling disk takes a third of a second of processor time to
    create them for each test; memory takes 15 milliseconds. TMPDIR overrides this.
    """
    if "TMPDIR" not in os.environ and _has_room(MEMORY_DISK):
        os.environ["TMPDIR"] = str(MEMORY_DISK)  # inherited by xdist's workers and by commands
        tempfile.tempdir = None


def _has_room(disk: Path) -> bool:
    """Whether the disk is writable, may hold programs, and has room for a run of all tests."""
    if not disk.is_dir() or not os.access(disk, os.W_OK):
        return False
    if os.statvfs(disk).f_flag & os.ST_NOEXEC:
        return False
    available = psutil.virtual_memory().available
    return min(shutil.disk_usage(disk).free, available) >= MEMORY_NEEDED


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that the docs name, and leave out long ones unless HEADWAY_LONG is set."""
    promised = promised_tests()
    for item in items:
        if item.nodeid.partition("[")[0] in promised and not _is_thorough_case(item):
            item.add_marker("promised")
    if os.environ.get("HEADWAY_LONG"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in set(long)]


def _is_thorough_case(item: pytest.Item) -> bool:
    """Whether one case of a parametrized test is marked, and not the test."""
    marks = item.callspec.marks if hasattr(item, "callspec") else ()
    return any(mark.name == "thorough" for mark in marks)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that the services run on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(scope="session")
async def postgres() -> AsyncIterator[TestPostgres]:
    """PostgreSQL for the session, with a migrated template.

    Not under pytest's own folder: another session that starts closes that for all accounts
    but ours, and as root PostgreSQL runs under one of its own.
    """
    with tempfile.TemporaryDirectory(prefix="headway-test-") as folder:
        async with run_postgres(Path(folder)) as server:
            await server.prepare()
            yield server
            await server.close()


@pytest_asyncio.fixture
async def database_url(
    request: pytest.FixtureRequest, postgres: TestPostgres
) -> AsyncIterator[str]:
    """A migrated database of the test's own; the invariants hold in it when the test is over.

    A test that breaks them on purpose says so, and why: `@pytest.mark.breaks_tables("...")`.
    """
    url = await postgres.new_database()
    yield url
    broken = [] if _breaks_tables(request) else await _look_into(url)
    await postgres.drop(url)
    assert broken == []


def _breaks_tables(request: pytest.FixtureRequest) -> bool:
    mark = request.node.get_closest_marker("breaks_tables")
    if mark is not None and not (mark.args and mark.args[0]):
        raise TypeError("breaks_tables wants a reason, which tells what the test breaks and why")
    return mark is not None


async def _look_into(url: str) -> list[str]:
    database = await Database.connect(url, name="invariants")
    try:
        return await broken_invariants(database)
    finally:
        await database.close()


@pytest_asyncio.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    """A pool on the test's database."""
    pool = await Database.connect(database_url, name="test")
    yield pool
    await pool.close()


@pytest_asyncio.fixture(scope="session")
async def nats() -> AsyncIterator[TestNats]:
    """NATS for the session."""
    with tempfile.TemporaryDirectory(prefix="headway-test-") as folder:
        async with run_nats(Path(folder)) as server:
            yield server


@pytest_asyncio.fixture
async def nats_url(nats: TestNats) -> str:
    """An empty NATS."""
    return await nats.empty_account()


@pytest_asyncio.fixture
async def broker(nats_url: str) -> AsyncIterator[Broker]:
    """A connection to the test's NATS."""
    connection = await Broker.connect(nats_url, name="test")
    yield connection
    await connection.close()


@pytest_asyncio.fixture
async def world(
    database_url: str, nats_url: str, database: Database, broker: Broker
) -> AsyncIterator[World]:
    """The services of Headway in this process, to be started as the test likes."""
    made = World(database_url, nats_url, database, broker)
    yield made
    await made.stop()


@pytest_asyncio.fixture
async def console(database_url: str, nats_url: str, tmp_path: Path) -> AsyncIterator[Console]:
    """The HTTP API, with a token for each role; the services behind it are the test's to start."""
    async with run_console(database_url, nats_url, tmp_path, local=LOCAL) as made:
        yield made
