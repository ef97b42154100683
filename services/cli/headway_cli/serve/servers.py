"""Connections to servers that may still be starting; the schemas of the database."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from headway_dispatcher.public import MIGRATIONS as DISPATCHER_MIGRATIONS
from headway_embedded import run_servers
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_scheduler.public import MIGRATIONS as SCHEDULER_MIGRATIONS
from headway_service_kit.process import keep_trying, run
from headway_service_kit.settings import DatabaseUrl
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.running import NothingRuns, display, find_alive
from headway_cli.terminal import options

Result = TypeVar("Result")

MIGRATIONS = (SCHEDULER_MIGRATIONS, DISPATCHER_MIGRATIONS)


@asynccontextmanager
async def reach_database(url: str, *, name: str, wait: float) -> AsyncIterator[Database]:
    """Connect to PostgreSQL while the body runs; tries for `wait` seconds."""
    database = await keep_trying(
        lambda: Database.connect(url, name=name),
        what="PostgreSQL is not reachable",
        faults=(DatabaseUnavailable,),
        within=wait,
    )
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def reach_broker(
    url: str, *, name: str, credentials: str | None, wait: float
) -> AsyncIterator[Broker]:
    """Connect to NATS while the body runs; the client itself tries for `wait` seconds."""
    timeout = max(1.0, wait)
    broker = await Broker.connect(url, name=name, credentials=credentials, timeout=timeout)
    try:
        yield broker
    finally:
        await broker.close()


async def apply_migrations(database: Database) -> list[str]:
    """Apply the missing migrations of both schemas; returns their titles."""
    return [step for migrations in MIGRATIONS for step in await migrations.apply(database)]


async def check_migrations(database: Database) -> None:
    """Raise `SchemaMismatch` unless both schemas have the version of this program."""
    for migrations in MIGRATIONS:
        await migrations.check(database)


class DatabaseSettings(Struct, frozen=True, kw_only=True):
    """The settings of a command that needs PostgreSQL only."""

    database_url: DatabaseUrl


class Tables(Struct, frozen=True, kw_only=True):
    """The options that say how to reach the database."""

    data: Path
    database_url: str | None
    wait: float

    @property
    def url(self) -> str | None:
        """The URL that was given, or of the `up` that runs; `None` if there is neither."""
        named = self.database_url or settings.get("database_url")
        running = None if named else find_alive(self.data)
        return named if running is None else running.database_url

    def read(
        self, read: Callable[[Database], Awaitable[Result]], *, stopped: bool = False
    ) -> Result:
        """Connect, read, and disconnect.

        If an `up` may be stopped and only its data folder is known, run PostgreSQL on it meanwhile.
        """

        async def connected() -> Result:
            async with (
                self._server(stopped=stopped) as url,
                reach_database(url, name="headway-look", wait=self.wait) as database,
            ):
                return await read(database)

        return run(connected())

    @asynccontextmanager
    async def _server(self, *, stopped: bool) -> AsyncIterator[str]:
        """Yield the URL of the database."""
        if self.url is not None:
            yield settings.read(DatabaseSettings, {"database_url": self.url}).database_url
        elif stopped and self.data.is_dir():
            async with run_servers(self.data, nats=False) as servers:
                yield servers.database_url
        else:
            raise NothingRuns(
                f"HEADWAY_DATABASE_URL is not set, and no 'headway up' runs in {display(self.data)}"
            )


reading_tables = options.collected(
    "tables",
    Tables,
    options.database_option,
    options.data_option("Data folder of a 'headway up', if no server is named."),
    options.wait_option,
    options.debug_option,
)
