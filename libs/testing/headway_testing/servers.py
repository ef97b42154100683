"""PostgreSQL and NATS of a world, as child processes that end with it.

Creating a database cluster takes a second or two, so worlds reuse the clusters of a session. They
are deleted at its end, with or without pytest.
"""

import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from headway_dispatcher.provisioning import provision
from headway_dispatcher.store import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_embedded import NatsServer, PostgresServer
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_scheduler.store import MIGRATIONS as SCHEDULER_MIGRATIONS
from msgspec import Struct

_STREAM_BYTES = 64 * 1024**2

# A world repeats the same small statements, so each is planned once.
_SETTINGS = {"plan_cache_mode": "force_generic_plan"}

# The clusters of this session, and whether a world uses them.
_clusters: dict[str, bool] = {}


class Servers(Struct, frozen=True, kw_only=True):
    """The URLs of the servers."""

    database_url: str
    nats_url: str


@asynccontextmanager
async def run_servers(folder: Path) -> AsyncIterator[Servers]:
    """Run a migrated, empty database and an empty NATS."""
    cluster = _borrow_cluster()
    postgres = PostgresServer(Path(cluster), durable=False, settings=_SETTINGS)
    nats = NatsServer(folder / "nats")
    try:
        async with AsyncExitStack() as stack:
            for server in (postgres, nats):
                await server.start()
                stack.push_async_callback(server.stop)
            await _reset_database(postgres.socket_url)
            await _create_streams(nats.url)
            yield Servers(database_url=postgres.socket_url, nats_url=nats.url)
    finally:
        _clusters[cluster] = False


def delete_clusters() -> None:
    """Delete the session's clusters."""
    for folder in _clusters:
        shutil.rmtree(folder, ignore_errors=True)
    _clusters.clear()


def _borrow_cluster() -> str:
    """Return a cluster that no other world uses; create one if there is none."""
    if not _clusters:
        # Unregistered first, so that it is registered once.
        atexit.unregister(delete_clusters)
        atexit.register(delete_clusters)
    free = [folder for folder, used in _clusters.items() if not used]
    cluster = free[0] if free else tempfile.mkdtemp(prefix="headway-world-")
    _clusters[cluster] = True
    return cluster


async def _create_streams(url: str) -> None:
    """Create the streams in memory; nothing outlives the world."""
    broker = await Broker.connect(url, name="headway-testing")
    try:
        await provision(broker, replicas=1, max_bytes=_STREAM_BYTES, storage="memory")
    finally:
        await broker.close()


async def _reset_database(url: str) -> None:
    """Drop the data of the previous world and migrate."""
    database = await Database.connect(url, name="headway-testing")
    try:
        async with database.acquire() as connection:
            for migrations in (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS):
                await connection.execute(f"DROP SCHEMA IF EXISTS {migrations.schema} CASCADE")
        for migrations in (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS):
            await migrations.apply(database)
    finally:
        await database.close()
