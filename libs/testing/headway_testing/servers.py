"""PostgreSQL and NATS for a world, as child processes that end with it.

Making a database cluster takes a second or two, so one is made for each session and kept until
that ends, with or without pytest.
"""

import atexit
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headway_dispatcher.provisioning import provision
from headway_dispatcher.store import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_embedded import NatsServer, PostgresServer
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database
from headway_scheduler.store import MIGRATIONS as SCHEDULER_MIGRATIONS
from msgspec import Struct

_STREAM_BYTES = 64 * 1024**2

# A moment of a world is many small statements, always the same ones: planned once is enough.
_SETTINGS = {"plan_cache_mode": "force_generic_plan"}

# The clusters of this session, and whether a world is using them.
_clusters: dict[str, bool] = {}


class Servers(Struct, frozen=True, kw_only=True):
    """Where the servers answer."""

    database_url: str
    nats_url: str


@asynccontextmanager
async def run_servers(folder: Path) -> AsyncIterator[Servers]:
    """A migrated, empty database and an empty NATS."""
    cluster = _borrow()
    postgres = PostgresServer(Path(cluster), durable=False, settings=_SETTINGS)
    nats = NatsServer(folder / "nats")
    try:
        await postgres.start()
        try:
            await nats.start()
            try:
                await _empty(postgres.socket_url)
                await _make_streams(nats.url)
                yield Servers(database_url=postgres.socket_url, nats_url=nats.url)
            finally:
                await nats.stop()
        finally:
            await postgres.stop()
    finally:
        _clusters[cluster] = False


def forget_clusters() -> None:
    """Delete the session's clusters."""
    for folder in _clusters:
        shutil.rmtree(folder, ignore_errors=True)
    _clusters.clear()


def _borrow() -> str:
    """A cluster that no other world uses, made if there is none."""
    if not _clusters:
        # The same function again is one call: who has forgotten them has nothing left to do.
        atexit.unregister(forget_clusters)
        atexit.register(forget_clusters)
    free = [folder for folder, used in _clusters.items() if not used]
    cluster = free[0] if free else tempfile.mkdtemp(prefix="headway-world-")
    _clusters[cluster] = True
    return cluster


async def _make_streams(url: str) -> None:
    """Streams in memory: as with the database, nothing has to outlive the world."""
    broker = await Broker.connect(url, name="headway-testing")
    try:
        await provision(broker, replicas=1, max_bytes=_STREAM_BYTES, storage="memory")
    finally:
        await broker.close()


async def _empty(url: str) -> None:
    database = await Database.connect(url, name="headway-testing")
    try:
        async with database.acquire() as connection:
            for migrations in (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS):
                await connection.execute(f"DROP SCHEMA IF EXISTS {migrations.schema} CASCADE")
        for migrations in (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS):
            await migrations.apply(database)
    finally:
        await database.close()
