"""The services of Headway in one process, for tests that look at them from outside."""

import asyncio
import getpass
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from headway import App, Client
from headway.worker import Worker, WorkerSettings
from headway_console.wiring import client_of
from headway_contract import subjects
from headway_contract.definitions import ApplyAnswer, PrunePolicy
from headway_contract.worker_protocol import HeartbeatReply
from headway_dispatcher.provisioning import provision_by
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.wiring import start_dispatcher
from headway_jetstream_kit import Broker
from headway_jetstream_kit.connection import PING_SECONDS
from headway_postgres_kit import DATABASE_CLOCK, Clock, Database
from headway_scheduler.declare.startup import apply
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.service import Service

from support.queries import Queries

STREAMS = DispatcherSettings(database_url="", nats_url="", stream_max_bytes=64 * 1024**2)
QUICK = {"heartbeat_seconds": 0.2, "orphan_timeout_seconds": 2.0}


class World(Queries):
    """Starts services and workers, waits for what they do, and stops them all."""

    def __init__(
        self, database_url: str, nats_url: str, database: Database, broker: Broker
    ) -> None:
        self.database_url = database_url
        self.nats_url = nats_url
        self.database = database
        self.broker = broker
        self.services: list[Service] = []
        self._workers: list[tuple[asyncio.Event, asyncio.Task[None], Broker]] = []

    async def provision(self) -> None:
        await provision_by(self.broker, STREAMS)

    async def dispatcher(self, *, clock: Clock = DATABASE_CLOCK, **settings: Any) -> Service:
        fields = {
            "database_url": self.database_url,
            "nats_url": self.nats_url,
            "provision": "auto",
            "stream_max_bytes": 64 * 1024**2,
            **QUICK,
            **settings,
        }
        service = await start_dispatcher(DispatcherSettings(**fields), clock=clock)
        self.services.append(service)
        return service

    async def scheduler(self, app: App | None = None, **settings: Any) -> Service:
        fields = {"database_url": self.database_url, "nats_url": self.nats_url, **settings}
        service = await start_scheduler(
            SchedulerSettings(**fields), app.definitions() if app else None
        )
        self.services.append(service)
        return service

    async def scheduler_of_files(self, app: App, **settings: Any) -> Service:
        """Start a scheduler without an app, for definitions that a person applied before."""
        await apply(
            self.database,
            app.definitions(),
            policy=settings.get("prune", "delete"),
            source="operator/ada",
            declares="files",
        )
        return await self.scheduler(**settings)

    async def fire(self, app: App) -> Service:
        """Declare the app, with every manifest due right now, and start a scheduler."""
        await self.declare(app)
        await self.make_due()
        return await self.scheduler(app)

    async def declare(self, app: App, *, prune: PrunePolicy = "delete") -> ApplyAnswer:
        """Declare an app as a starting scheduler does; running services notice it at once."""
        applied = await apply(self.database, app.definitions(), policy=prune)
        for service in self.services:
            service.wake("relay")
        return applied

    async def make_due(self, *external_ids: str) -> None:
        """Make manifests due right now, all of them if none is named."""
        await self.value(
            "UPDATE scheduler.manifest SET next_due_at = clock_timestamp(),"
            " wake_at = clock_timestamp() WHERE external_id = ANY($1) OR $1 = '{}'",
            list(external_ids),
        )

    async def worker(
        self,
        app: App,
        *,
        ping_seconds: float = PING_SECONDS,
        only: Iterable[str] = (),
        **settings: Any,
    ) -> Worker:
        broker = await Broker.connect(self.nats_url, name="worker", ping_seconds=ping_seconds)
        given = WorkerSettings(**{"heartbeat_seconds": 0.2, **settings})
        worker = Worker(app, broker, given, only=only)
        stop = asyncio.Event()
        task = asyncio.create_task(worker.run(stop))
        self._workers.append((stop, task, broker))
        return worker

    async def serve(self, app: App, **settings: Any) -> Worker:
        """Start a dispatcher, and a worker of the app with these settings."""
        await self.dispatcher()
        return await self.worker(app, **settings)

    async def run(self, app: App, **settings: Any) -> Service:
        """Start a dispatcher, a worker and a scheduler, with every manifest due right now."""
        await self.serve(app, **settings)
        return await self.fire(app)

    def client(self, actor: str | None = None) -> AbstractAsyncContextManager[Client]:
        """A client of a console in this process; the audit names the actor."""
        return client_of(
            self.database,
            self.broker,
            actor=actor or getpass.getuser(),
            orphan_timeout_seconds=QUICK["orphan_timeout_seconds"],
        )

    async def beat(self, worker: str, **fields: Any) -> HeartbeatReply:
        """Send the heartbeat of a worker that serves `job`; returns the dispatcher's reply."""
        heartbeat = {"worker": worker, "nonce": "n", "jobs": ["job"], "slots": 1, **fields}
        reply = await self.broker.client.request(
            subjects.HEARTBEAT, msgspec.json.encode(heartbeat), timeout=5
        )
        return msgspec.json.decode(reply.data, type=HeartbeatReply)

    async def stop_workers(self) -> None:
        workers, self._workers = self._workers, []
        for stop, _, _ in workers:
            stop.set()
        for _, task, broker in workers:
            await task
            await broker.close()

    async def stop(self) -> None:
        await self.stop_workers()
        for service in self.services:
            await service.stop()

    async def until(self, query: str, *arguments: Any, within: float = 20.0) -> Any:
        """Wait until a query's first value is true; returns it."""

        async def ask() -> Any:
            return await self.value(query, *arguments)

        return await until(ask, within=within, what=query)

    async def until_settled(self, *, at_least: int = 1, within: float = 20.0) -> None:
        """Wait until so much work is settled in both services and nothing is under way."""
        await self.until(
            "SELECT (SELECT count(*) FROM dispatcher.work_queue WHERE state = 'settled') >= $1"
            " AND NOT EXISTS (SELECT FROM dispatcher.work_queue WHERE state <> 'settled')"
            " AND NOT EXISTS (SELECT FROM scheduler.work)"
            " AND NOT EXISTS (SELECT FROM scheduler.outbox)"
            " AND NOT EXISTS (SELECT FROM dispatcher.outbox)",
            at_least,
            within=within,
        )


async def until(ask: Callable[[], Awaitable[Any]], *, within: float, what: str) -> Any:
    """Poll a condition until it holds; fails with what it was after the deadline."""
    try:
        async with asyncio.timeout(within):
            while not (answer := await ask()):
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s: {what}") from None
    return answer
