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

from headway_dispatcher.provisioning import provision_by
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_embedded import NatsServer, PostgresServer
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_scheduler.store import MIGRATIONS as SCHEDULER_MIGRATIONS
from msgspec import Struct

_STREAMS = DispatcherSettings(database_url="", nats_url="", stream_max_bytes=64 * 1024**2)

# A world repeats the same small statements, so each is planned once.
_SETTINGS = {"plan_cache_mode": "force_generic_plan"}
# Little is in flight, but PostgreSQL plans full scans of small tables and keeps these plans when
# the tables grow.
_OWN_SETTINGS = {"enable_seqscan": "off"}

# The clusters of this session, and whether a world uses them.
_clusters: dict[str, bool] = {}


class Servers(Struct, frozen=True, kw_only=True):
    """The URLs of the servers, and the world's own connections to them."""

    database_url: str
    nats_url: str
    database: Database
    broker: Broker


@asynccontextmanager
async def run_servers(folder: Path) -> AsyncIterator[Servers]:
    """Run a migrated, empty database, and a NATS with empty streams in memory."""
    cluster = _borrow_cluster()
    postgres = PostgresServer(Path(cluster), durable=False, settings=_SETTINGS)
    nats = NatsServer(folder / "nats")
    try:
        async with AsyncExitStack() as stack:
            for server in (postgres, nats):
                await server.start()
                stack.push_async_callback(server.stop)
            database = await Database.connect(
                postgres.socket_url, name="headway-world", settings=_OWN_SETTINGS
            )
            stack.push_async_callback(database.close)
            broker = await Broker.connect(nats.url, name="headway-world")
            stack.push_async_callback(broker.close)
            await _reset(database)
            await provision_by(broker, _STREAMS, storage="memory")
            yield Servers(
                database_url=postgres.socket_url,
                nats_url=nats.url,
                database=database,
                broker=broker,
            )
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


async def _reset(database: Database) -> None:
    """Drop the data of the previous world and migrate."""
    async with database.acquire() as connection:
        for migrations in (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS):
            await connection.execute(f"DROP SCHEMA IF EXISTS {migrations.schema} CASCADE")
    for migrations in (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS):
        await migrations.apply(database)
