"""Commands that read the database: by its URL, or that of the `up` of a data folder."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from headway_embedded import run_servers
from headway_postgres_kit import Database
from headway_postgres_kit.database import describe_url
from headway_service_kit.process import run
from headway_service_kit.settings import DatabaseUrl
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.running import NothingRuns, display, find_alive
from headway_cli.serve.servers import reach_database
from headway_cli.terminal import options

Result = TypeVar("Result")


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

    @property
    def where(self) -> str:
        """The database in words, without secrets."""
        url = self.url
        return str(self.data) if url is None else describe_url(url)

    def read(
        self, read: Callable[[Database], Awaitable[Result]], *, stopped: bool = False
    ) -> Result:
        """Connect, read, and disconnect.

        If an `up` may be stopped and only its data folder is known, run PostgreSQL on it meanwhile.
        """

        async def connected() -> Result:
            async with self._server(stopped=stopped) as url:
                database = await reach_database(url, name="headway-look", wait=self.wait)
                try:
                    return await read(database)
                finally:
                    await database.close()

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
