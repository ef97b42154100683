"""PostgreSQL and NATS for a world, as child processes that end with it.

Making a database cluster takes a second or two, so one is made for each session and kept.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headway_dispatcher.store import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_embedded import NatsServer, PostgresServer
from headway_postgres_kit import Database
from headway_scheduler.store import MIGRATIONS as SCHEDULER_MIGRATIONS
from msgspec import Struct

_kept: list[str] = []


class Servers(Struct, frozen=True, kw_only=True):
    """Where the servers answer."""

    database_url: str
    nats_url: str


@asynccontextmanager
async def run_servers(folder: Path) -> AsyncIterator[Servers]:
    """A migrated, empty database and an empty NATS."""
    postgres = PostgresServer(_folder_of_the_session(), durable=False)
    nats = NatsServer(folder / "nats")
    await postgres.start()
    try:
        await nats.start()
        try:
            await _empty(postgres.url)
            yield Servers(database_url=postgres.url, nats_url=nats.url)
        finally:
            await nats.stop()
    finally:
        await postgres.stop()


def forget_folder() -> None:
    """Delete the session's cluster."""
    for folder in _kept:
        shutil.rmtree(folder, ignore_errors=True)
    _kept.clear()


def _folder_of_the_session() -> Path:
    if not _kept:
        _kept.append(tempfile.mkdtemp(prefix="headway-world-"))
    return Path(_kept[0])


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
