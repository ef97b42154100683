"""Runs both servers for the duration of a block of code."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headway_embedded.data_folder import EmbeddedError, Lock, folder_errors, make_folder
from headway_embedded.nats import NatsServer
from headway_embedded.postgres import PostgresServer
from headway_embedded.server import Server

RECOVERED = "the last run ended without a clean stop; its data was recovered"


@dataclass(frozen=True)
class Servers:
    """The running servers; the URL of a server that was not requested is empty."""

    database_url: str = field(repr=False)
    nats_url: str = field(repr=False)
    recovered: bool
    notes: list[str]
    running: list[Server]


@asynccontextmanager
async def run_servers(
    folder: Path,
    *,
    postgres: bool = True,
    nats: bool = True,
    nats_port: int | None = None,
    durable: bool = True,
) -> AsyncIterator[Servers]:
    """Run the servers on data in `folder`, which one process at a time can use."""
    database = PostgresServer(folder, durable=durable) if postgres else None
    broker = NatsServer(folder, port=nats_port) if nats else None
    running: list[Server] = [server for server in (database, broker) if server is not None]
    lock = _lock(folder)
    try:
        # All starts end before the first failure is raised.
        starts = (server.start() for server in running)
        for outcome in await asyncio.gather(*starts, return_exceptions=True):
            if outcome is not None:
                raise outcome
        recovered = any(server.recovered for server in running)
        notes = [note for server in running for note in server.notes]
        yield Servers(
            database_url=database.url if database else "",
            nats_url=broker.url if broker else "",
            recovered=recovered,
            notes=[RECOVERED, *notes] if recovered else notes,
            running=running,
        )
    finally:
        await asyncio.gather(*(server.stop() for server in running))
        lock.release(clean=True)


def _lock(folder: Path) -> Lock:
    """Lock the folder for this process; raise if another process uses it."""
    folder = folder.absolute()
    lock = Lock(folder / "lock")
    with folder_errors(folder):
        make_folder(folder)
        if not lock.try_take():
            raise EmbeddedError(
                f"data folder {folder} is in use by process {lock.holder()}; "
                "stop it or choose another folder with --data"
            )
    return lock
