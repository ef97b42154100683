"""Embedded servers, the services of a benchmark as processes, and the cost of work in each."""

import asyncio
import contextlib
import json
import os
import sys
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from subprocess import DEVNULL
from typing import Any

import psutil
from headway import Client
from headway.client.client import RequestFailed
from headway_clock import monotonic, utc_now
from headway_console.wiring import open_client
from headway_embedded import NatsServer, PostgresServer, SupervisedProcess, free_port, last_lines
from headway_postgres_kit import Database, Queries

from headway_cli.serve.running import PartEnded
from headway_cli.serve.servers import apply_migrations

queries = Queries("headway_cli", "sql/bench.sql")

APP = "headway_cli.bench.measured_app:app"
_SERVICE_SECONDS = 30.0
_SCENARIO_SECONDS = 300.0
_STREAM_BYTES = 512 * 1024**2
_POLL_SECONDS = 0.02
# Sessions of PostgreSQL report their rows once a second, and when they have been idle for ten.
_BUSY_DELAY_SECONDS, _IDLE_DELAY_SECONDS = 1.2, 10.5


class Bench:
    """Servers and services of one benchmark; the stack stops them all."""

    def __init__(
        self, stack: AsyncExitStack, folder: Path, *, slots: int = 50, workers: int = 1
    ) -> None:
        self._stack = stack
        self._slots = slots
        self._workers = workers
        self._log = folder / "services.log"
        monitor = f"127.0.0.1:{free_port()}"
        self._monitor_url = f"http://{monitor}/varz"
        self._postgres = PostgresServer(
            folder, settings={"shared_preload_libraries": "pg_stat_statements"}
        )
        self._nats = NatsServer(folder, config_extra=f'http: "{monitor}"')
        self._services: dict[str, SupervisedProcess] = {}
        # The id of a process, and its CPU time before it is counted.
        self._processes: dict[str, tuple[int, float]] = {}
        self.nats_url = ""
        self.database: Database
        self.client: Client

    async def start(self) -> None:
        """Start the servers, then scheduler and dispatcher; workers start when needed."""
        for server in (self._postgres, self._nats):
            await server.start()
            self._stack.push_async_callback(server.stop)
        self.nats_url = self._nats.url
        self._processes["postgresql"] = (self._postgres.process_id, 0.0)
        self._processes["nats"] = (self._nats.process_id, 0.0)
        self.database = await Database.connect(self._postgres.url, name="headway-bench")
        self._stack.push_async_callback(self.database.close)
        await apply_migrations(self.database)
        async with self.database.acquire() as connection:
            await connection.execute(queries["count_statements"])
        for service in ("dispatcher", "scheduler"):
            await self._start(service, service)
            self._count_from_now(service)
        self.client = await self._stack.enter_async_context(
            open_client(self._postgres.url, self._nats.url, actor="headway-bench")
        )
        await self.until(self._scheduler_answers, "the scheduler", within=_SERVICE_SECONDS)

    async def start_workers(self) -> None:
        """Start workers unless they run; their CPU time counts from their first heartbeats."""
        names = [f"worker {number + 1}" for number in range(self._workers)]
        if names[0] in self._services:
            return
        began = utc_now()
        for name in names:
            await self._start(name, "worker", "--slots", str(self._slots))

        async def heard() -> bool:
            return bool(await self.value(queries["workers"], began) >= self._workers)

        await self.until(heard, "the first heartbeats of the workers", within=_SERVICE_SECONDS)
        for name in names:
            self._count_from_now(name)

    async def value(self, query: str, *arguments: Any) -> Any:
        """Read one value from the database."""
        async with self.database.acquire() as connection:
            return await connection.fetchval(query, *arguments)

    async def until(
        self, done: Callable[[], Awaitable[Any]], what: str, *, within: float = _SCENARIO_SECONDS
    ) -> None:
        """Wait for a condition; a service that exits ends the benchmark."""
        deadline = monotonic() + within
        while not await done():
            for name, service in self._services.items():
                if service.returncode is not None:
                    raise self._failed(f"the {name} exited unexpectedly")
            if monotonic() > deadline:
                raise self._failed(f"waited {within:.0f} s for {what}")
            await asyncio.sleep(_POLL_SECONDS)

    @asynccontextmanager
    async def measuring(self, figures: dict[str, Any], *, work: int) -> AsyncIterator[None]:
        """Add the cost of each work to the figures of a scenario."""
        await asyncio.sleep(_BUSY_DELAY_SECONDS)
        before = await self._read_counters() | await self._read_rows()
        used_before = self._processor_seconds()
        yield
        # Read before the rows: waiting for them must not count.
        used = self._processor_seconds()
        after = await self._read_counters()
        await asyncio.sleep(_IDLE_DELAY_SECONDS)
        after |= await self._read_rows()
        processor_ms = {
            name: round((seconds - used_before.get(name, 0.0)) * 1000 / work, 3)
            for name, seconds in used.items()
        }
        counts = {name: round((after[name] - before[name]) / work, 2) for name in after}
        figures["cost_each"] = {"processor_ms": processor_ms, **counts}

    async def _read_counters(self) -> dict[str, int]:
        """Read the counters of PostgreSQL and NATS that are always current."""
        async with self.database.acquire() as connection:
            [row] = await connection.fetch(queries["counters"])
        traffic = await asyncio.to_thread(self._read_traffic)
        return {**row, "messages_in": traffic["in_msgs"], "messages_out": traffic["out_msgs"]}

    async def _read_rows(self) -> dict[str, int]:
        async with self.database.acquire() as connection:
            [row] = await connection.fetch(queries["row_counters"])
        return dict(row)

    def _read_traffic(self) -> dict[str, int]:
        with urllib.request.urlopen(self._monitor_url) as answer:  # noqa: S310 - loopback
            traffic: dict[str, int] = json.load(answer)
        return traffic

    def _processor_seconds(self) -> dict[str, float]:
        return {
            name: _processor_seconds(pid) - offset
            for name, (pid, offset) in self._processes.items()
        }

    def _count_from_now(self, name: str) -> None:
        pid = self._services[name].process_id
        self._processes[name] = (pid, _processor_seconds(pid))

    async def _scheduler_answers(self) -> bool:
        try:
            await self.client.ledger()
        except RequestFailed:
            return False
        return True

    def _failed(self, what: str) -> PartEnded:
        return PartEnded(f"{what}; the last log lines of the services:\n{last_lines(self._log)}")

    async def _start(self, name: str, *arguments: str) -> None:
        # Without the user's settings: a benchmark measures the defaults.
        kept = {name: value for name, value in os.environ.items() if name[:8] != "HEADWAY_"}
        environment = {
            **kept,
            "HEADWAY_DATABASE_URL": self._postgres.url,
            "HEADWAY_NATS_URL": self._nats.url,
            "HEADWAY_APP": APP,
            "HEADWAY_PROVISION": "auto",
            "HEADWAY_STREAM_MAX_BYTES": str(_STREAM_BYTES),
            "HEADWAY_MAX_ACTIVE": str(max(100, 2 * self._slots * self._workers)),
        }
        words = [sys.executable, "-m", "headway_cli", *arguments]
        with self._log.open("ab") as log:
            process = await SupervisedProcess.start(
                words, env=environment, cwd=Path.cwd(), stdout=DEVNULL, stderr=log.fileno()
            )
        self._stack.push_async_callback(process.stop)
        self._services[name] = process


def _processor_seconds(pid: int) -> float:
    """Read the CPU time of a process and its descendants, living or gone."""
    root = psutil.Process(pid)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
            # The times of ended processes are added to their parents.
            total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total
