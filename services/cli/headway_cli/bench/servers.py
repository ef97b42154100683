"""Embedded servers with counters, and the services of a benchmark as processes."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

from headway import Client
from headway.client.client import RequestFailed
from headway_clock import monotonic
from headway_console.in_process import open_client
from headway_embedded import NatsServer, PostgresServer, SupervisedProcess, free_port, last_lines
from headway_postgres_kit import Database, Queries

from headway_cli.bench.counters import Counters
from headway_cli.serve.running import PartEnded
from headway_cli.serve.services import apply_migrations

queries = Queries("headway_cli", "sql/bench.sql")

APP = "headway_cli.bench.measured_app:app"
SERVICE_SECONDS = 30.0
_STREAM_BYTES = 512 * 1024**2
_POLL_SECONDS = 0.02


class Bench:
    """Servers and services of one benchmark; the stack stops them all."""

    def __init__(self, stack: AsyncExitStack, folder: Path, *, slots: int) -> None:
        self._stack = stack
        self._slots = slots
        self._log = folder / "services.log"
        monitor = free_port()
        self._postgres = PostgresServer(
            folder, settings={"shared_preload_libraries": "pg_stat_statements"}
        )
        self._nats = NatsServer(folder, config_extra=f'http: "127.0.0.1:{monitor}"')
        self._monitor_url = f"http://127.0.0.1:{monitor}"
        self._services: dict[str, SupervisedProcess] = {}

    async def start(self) -> None:
        """Start the servers, then scheduler and dispatcher; workers start when needed."""
        for server in (self._postgres, self._nats):
            await server.start()
            self._stack.push_async_callback(server.stop)
        self.database = await Database.connect(self._postgres.url, name="headway-bench")
        self._stack.push_async_callback(self.database.close)
        await apply_migrations(self.database)
        async with self.database.acquire() as connection:
            await connection.execute(queries["count_statements"])
        self.counters = Counters(
            self.database,
            self._monitor_url,
            {"postgresql": self._postgres.process_id, "nats": self._nats.process_id},
        )
        await self._start("dispatcher", "dispatcher")
        await self._start("scheduler", "scheduler")
        self.client: Client = await self._stack.enter_async_context(
            open_client(self._postgres.url, self._nats.url, actor="headway-bench")
        )
        await self.until(self._scheduler_answers, what="the scheduler", within=SERVICE_SECONDS)

    @property
    def nats_url(self) -> str:
        """The URL of NATS."""
        return self._nats.url

    async def need_worker(self) -> None:
        """Start a worker, unless one runs."""
        if not await self.count(queries["workers"]):
            await self.start_worker()

    async def start_worker(self) -> None:
        """Start another worker and wait for its first heartbeat; its start-up costs nothing."""
        before = await self.count(queries["workers"])
        name = f"worker {before + 1}"
        await self._start(name, "worker", "--slots", str(self._slots))

        async def heard() -> bool:
            return await self.count(queries["workers"]) > before

        await self.until(heard, what="the first heartbeat of the worker", within=SERVICE_SECONDS)
        self.counters.watch(name, self._services[name].process_id)

    async def count(self, query: str) -> int:
        """Read one number from the database."""
        async with self.database.acquire() as connection:
            number: int = await connection.fetchval(query)
            return number

    async def holds(self, query: str, *arguments: Any) -> bool:
        """Evaluate a cheap condition in the database."""
        async with self.database.acquire() as connection:
            return bool(await connection.fetchval(query, *arguments))

    async def until(self, done: Callable[[], Awaitable[bool]], *, what: str, within: float) -> None:
        """Wait for a condition; a service that exits ends the benchmark."""
        deadline = monotonic() + within
        while not await done():
            for name, service in self._services.items():
                if service.returncode is not None:
                    raise self._failed(f"the {name} exited unexpectedly")
            if monotonic() > deadline:
                raise self._failed(f"waited {within:.0f} s for {what}")
            await asyncio.sleep(_POLL_SECONDS)

    async def _scheduler_answers(self) -> bool:
        try:
            await self.client.ledger()
        except RequestFailed:
            return False
        return True

    def _failed(self, what: str) -> PartEnded:
        return PartEnded(f"{what}; the last log lines of the services:\n{last_lines(self._log)}")

    async def _start(self, name: str, *arguments: str) -> None:
        with self._log.open("ab") as log:
            process = await SupervisedProcess.start(
                [sys.executable, "-m", "headway_cli", *arguments],
                env=self._environment(),
                cwd=Path.cwd(),
                stdout=DEVNULL,
                stderr=log.fileno(),
            )
        self._stack.push_async_callback(process.stop)
        self._services[name] = process
        self.counters.watch(name, process.process_id)

    def _environment(self) -> dict[str, str]:
        """Remove the user's settings: a benchmark measures the defaults."""
        kept = {name: value for name, value in os.environ.items() if name[:8] != "HEADWAY_"}
        return {
            **kept,
            "HEADWAY_DATABASE_URL": self._postgres.url,
            "HEADWAY_NATS_URL": self._nats.url,
            "HEADWAY_APP": APP,
            "HEADWAY_PROVISION": "auto",
            "HEADWAY_STREAM_MAX_BYTES": str(_STREAM_BYTES),
            "HEADWAY_MAX_ACTIVE": str(max(100, 2 * self._slots)),
        }
