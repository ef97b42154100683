"""Commands that read the database: by its URL, or that of the `up` of a data folder."""

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

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
Read = Callable[[Database], Awaitable[Result]]


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

    def read(self, read: Read[Result]) -> Result:
        """Connect, read, and disconnect."""
        url = self.url
        if url is None:
            raise NothingRuns(
                f"HEADWAY_DATABASE_URL is not set, and no 'headway up' runs in {display(self.data)}"
            )
        known = settings.read(DatabaseSettings, {"database_url": url}).database_url

        async def connected() -> Result:
            async with self._opened(known) as database:
                return await read(database)

        return run(connected())

    def read_while_stopped(self, read: Read[Result]) -> Result:
        """Do the same; if only a data folder is known, run PostgreSQL on it meanwhile."""
        if self.url is not None or not self.data.is_dir():
            return self.read(read)

        async def connected() -> Result:
            async with (
                run_servers(self.data, nats=False) as servers,
                self._opened(servers.database_url) as database,
            ):
                return await read(database)

        return run(connected())

    @asynccontextmanager
    async def _opened(self, url: str) -> AsyncIterator[Database]:
        database = await reach_database(url, name="headway-look", wait=self.wait)
        try:
            yield database
        finally:
            await database.close()


def reading_tables(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a command that reads the tables; it gets them as `tables`."""

    @functools.wraps(command)
    def called(
        *arguments: Any, data: Path, database_url: str | None, wait: float, **rest: Any
    ) -> Any:
        tables = Tables(data=data, database_url=database_url, wait=wait)
        return command(*arguments, tables=tables, **rest)

    return options.together(
        options.database_option,
        options.data_option("Data folder of a 'headway up', if no server is named."),
        options.wait_option,
        options.debug_option,
    )(called)
