"""How commands reach the database: by its URL, or that of the `up` which runs on a data folder."""

import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
from headway_embedded import run_servers
from headway_postgres_kit import Database
from headway_postgres_kit.database import describe_url
from headway_service_kit.process import run
from headway_service_kit.settings import given
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.running import NothingRuns, find_database
from headway_cli.serve.wait_for_servers import reach_database
from headway_cli.terminal import options

Result = TypeVar("Result")


class DatabaseSettings(Struct, frozen=True, kw_only=True):
    """What a command needs that looks into the tables."""

    database_url: str


class Tables(Struct, frozen=True, kw_only=True):
    """What the options say about how to reach the database."""

    data: Path
    database_url: str | None
    wait: float

    @property
    def url(self) -> str | None:
        """The URL that was given, or of an `up` that runs; none if there is neither."""
        named = self.database_url or given(os.environ, "database_url")
        return named or find_database(self.data)

    @property
    def where(self) -> str:
        """Which database that is, in words and without secrets."""
        url = self.url
        return str(self.data) if url is None else describe_url(url)

    def look(self, question: Callable[[Database], Awaitable[Result]]) -> Result:
        """Connect, look, and hang up."""

        async def looked() -> Result:
            async with self._opened(self._known()) as database:
                return await question(database)

        return run(looked())

    def look_while_stopped(self, question: Callable[[Database], Awaitable[Result]]) -> Result:
        """The same; where only a data folder is known, PostgreSQL runs on it as long as needed."""
        if self.url is not None or not self.data.is_dir():
            return self.look(question)

        async def looked() -> Result:
            async with (
                run_servers(self.data, nats=False) as servers,
                self._opened(servers.database_url) as database,
            ):
                return await question(database)

        return run(looked())

    def _known(self) -> str:
        url = self.url
        if url is None:
            shown = self.data if self.data.is_absolute() else f"./{self.data}"
            raise NothingRuns(
                f"HEADWAY_DATABASE_URL is not set, and no 'headway up' runs in {shown}"
            )
        return settings.read(DatabaseSettings, {"database_url": url}).database_url

    @asynccontextmanager
    async def _opened(self, url: str) -> AsyncIterator[Database]:
        database = await reach_database(url, name="headway-look", wait=self.wait)
        try:
            yield database
        finally:
            await database.close()


def looking(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of every command that looks into the tables; it gets them as `tables`."""

    # With the attributes of the command: options below this one have left themselves there.
    @functools.wraps(command)
    def called(
        *arguments: Any, data: Path, database_url: str | None, wait: float, **rest: Any
    ) -> Any:
        tables = Tables(data=data, database_url=database_url, wait=wait)
        return command(*arguments, tables=tables, **rest)

    complete: Callable[..., Any] = called
    for option in (options.debug_option, options.wait_option, data_option, options.database_option):
        complete = option(complete)
    return complete


data_option = click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".headway"),
    show_default=True,
    help="The data folder of a 'headway up', if no server is named.",
)
