"""Shared by the scripts: an embedded PostgreSQL, sizes as arguments, figures as output."""

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop
from headway_cli.serve.servers import apply_migrations
from headway_embedded import PostgresServer
from headway_postgres_kit import Database

ANSWER_SECONDS = 600


@asynccontextmanager
async def empty_database() -> AsyncIterator[tuple[Database, str]]:
    """Start a server with Headway's empty tables; returns also its URL."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as folder:
        server = PostgresServer(Path(folder))
        await server.start()
        try:
            name = {"name": "bench", "answer_seconds": ANSWER_SECONDS}
            database = await Database.connect(server.url, **name)
            try:
                await apply_migrations(database)
                yield database, server.url
            finally:
                await database.close()
        finally:
            await server.stop()


def print_figures(measured: Awaitable[dict[str, Any]]) -> None:
    sys.stdout.write(json.dumps(uvloop.run(measured), indent=2) + "\n")


def read_size(text: str) -> int:
    """Read a number such as `50k` or `1m`."""
    return int(text.lower().replace("k", "000").replace("m", "000000"))


def read_sizes(text: str) -> list[int]:
    return [read_size(part) for part in text.split(",")]
