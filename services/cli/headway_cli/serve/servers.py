"""Connections to servers that may still be starting, and to the database of an `up`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from headway_clock import monotonic
from headway_embedded import run_servers
from headway_jetstream_kit import Broker
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_service_kit.process import run
from headway_service_kit.settings import DatabaseUrl
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_cli.serve import settings
from headway_cli.serve.running import NothingRuns, display, find_alive
from headway_cli.terminal import options

log = get_logger(__name__)

Result = TypeVar("Result")

_LONGEST_PAUSE = 2.0
_CLEAN_UP_SECONDS = 12.0


class Stopped(Exception):
    """A signal came before the command had started."""


@asynccontextmanager
async def reach_database(url: str, *, name: str, wait: float) -> AsyncIterator[Database]:
    """Connect to PostgreSQL while the body runs; tries for `wait` seconds."""
    deadline, pause, database = monotonic() + wait, 0.2, None
    while database is None:
        try:
            database = await Database.connect(url, name=name)
        except DatabaseUnavailable as error:
            if monotonic() + pause > deadline:
                raise
            log.warning("PostgreSQL not reachable; trying again", error=error)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)
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


async def unless_stopped(work: Coroutine[Any, Any, Result], stop: asyncio.Event) -> Result:
    """Return the result of the work; on a signal cancel it and raise `Stopped`."""
    task, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
    if task.done():
        return task.result()
    while not task.done():
        # Up to Python 3.11 `asyncio.wait_for` can swallow a cancellation, so it is repeated; but
        # not at once, because a second one would interrupt the clean-up after the first.
        task.cancel()
        await asyncio.wait({task}, timeout=_CLEAN_UP_SECONDS)
    if task.cancelled() or task.exception() is not None:
        raise Stopped
    return task.result()


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
