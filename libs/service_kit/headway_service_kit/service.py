"""A service: passes over one database and one broker, with health."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.tasks import end
from headway_postgres_kit import Database, DatabaseUnavailable

from headway_service_kit.health import Check, Health
from headway_service_kit.ignored_messages import new_counts
from headway_service_kit.metrics import Measure, Meter, Readings
from headway_service_kit.own_metrics import OwnMeasures
from headway_service_kit.passes import SAFETY_POLL, Pass, RunOnce, Wakeup
from headway_service_kit.process import keep_trying
from headway_service_kit.settings import ServiceSettings

Result = TypeVar("Result")


class Service:
    """Starts and stops passes together, and serves their health."""

    def __init__(
        self,
        name: str,
        database: Database,
        broker: Broker,
        measures: Iterable[Measure] = (),
        *,
        requests: Database | None = None,
    ) -> None:
        self.name = name
        # Passes and requests of users have separate pools, so that no burst delays a pass.
        self.database = database
        self.requests = requests or database
        self._databases = [database] if requests in (None, database) else [database, self.requests]
        self.counts = new_counts()
        self.broker = broker
        self.health: Health | None = None
        self._passes: dict[str, Pass] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._watchers: dict[str, Callable[[], None]] = {}
        self._own = OwnMeasures(name)
        self.meter = Meter([*self._own.all(), *measures], answers=self._own.answers)
        self.meter.read_from(self._read_own_metrics)

    def keep(
        self,
        name: str,
        run_once: RunOnce,
        wakeup: Wakeup | None = None,
        *,
        poll: float = SAFETY_POLL,
        longest_backoff: float = 10.0,
    ) -> None:
        """Run a pass until the service stops."""
        self._passes[name] = kept = Pass(
            name,
            run_once,
            wakeup or Wakeup(),
            poll=poll,
            longest_backoff=longest_backoff,
            on_end=self._record_pass,
        )
        self._tasks[name] = asyncio.create_task(kept.keep_running(), name=f"{self.name}-{name}")

    async def answer_for_health(self, address: str, *, live: Sequence[Check] = ()) -> int:
        """Serve health checks, including those in `live`; returns the port."""
        passes = self._passes.values()
        self.health = Health(
            self.name,
            live=[*(kept.silence for kept in passes), *live],
            ready=[
                _reachable("PostgreSQL", self.database.ping),
                _reachable("NATS", self.broker.ping),
                *(kept.trouble for kept in passes),
            ],
            meters=[self.meter],
        )
        await self.health.start(address)
        return self.health.port

    async def wait_for(
        self,
        step: Callable[[], Awaitable[Result]],
        *,
        what: str,
        faults: tuple[type[Exception], ...],
        address: str,
        give_up_after: int | None = None,
    ) -> Result:
        """Repeat a step of the start until it succeeds; `/readyz` gives the reason meanwhile."""
        reason = ""

        async def blocked() -> str:
            return f"waiting for {what}: {reason}"

        async def attempt() -> Result:
            nonlocal reason
            try:
                return await step()
            except faults as error:
                reason = str(error)
                if self.health is None:
                    self.health = Health(self.name, live=[], ready=[blocked])
                    await self.health.start(address)
                raise

        try:
            return await keep_trying(
                attempt,
                what=f"{self.name} waits for {what}",
                faults=faults,
                give_up_after=give_up_after,
            )
        finally:
            if self.health is not None:
                await self.health.stop()
                self.health = None

    async def run_until(self, stop: asyncio.Event) -> None:
        """Wait for `stop`, then stop the service; raise if the broker's connection is closed."""
        stopped = asyncio.create_task(stop.wait())
        closed = asyncio.create_task(self.broker.closed.wait())
        try:
            await asyncio.wait({stopped, closed}, return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                raise BrokerUnavailable(f"{self.broker.where}: the connection is closed for good")
        finally:
            await end([stopped, closed])
            await self.stop()

    def wake(self, name: str) -> None:
        """Run a pass at once instead of after its rest."""
        self._pass(name).wakeup.call()

    def watch(self, name: str, on_pass: Callable[[], None]) -> None:
        """Call `on_pass` after each success of a pass."""
        self._watchers[name] = on_pass

    async def end_pass(self, name: str) -> None:
        """Stop a pass; the others continue."""
        await end([self._tasks.pop(name)])

    async def stop(self) -> None:
        """Stop everything; the next start resumes interrupted passes."""
        await end(list(self._tasks.values()))
        if self.health is not None:
            await self.health.stop()
        self.meter.stop()
        await self.broker.close()
        for database in self._databases:
            await database.close()

    def on_commit(self, callback: Callable[[list[Any]], None]) -> None:
        """Call `callback` with the notes of each committed transaction."""
        for database in self._databases:
            database.on_commit = callback

    def _record_pass(self, name: str, seconds: float | None) -> None:
        if seconds is None:
            self.meter.add(self._own.pass_failures, name)
        else:
            self.meter.observe(self._own.pass_seconds, seconds, name)
            if name in self._watchers:
                self._watchers[name]()

    def _read_own_metrics(self) -> Readings:
        own, pools = self._own, self._databases
        return {
            own.pass_age: {(name,): kept.age() for name, kept in self._passes.items()},
            own.database_connections: {(): sum(pool.connections for pool in pools)},
            own.database_connections_in_use: {(): sum(pool.connections_in_use for pool in pools)},
            own.nats_connected: {(): float(self.broker.client.is_connected)},
            own.nats_reconnects: {(): self.broker.reconnects},
            own.passed_over: {(reason,): number for reason, number in self.counts.items()},
        }

    def _pass(self, name: str) -> Pass:
        if name not in self._passes:
            known = ", ".join(self._passes) or "none"
            raise KeyError(f"{self.name} has no pass {name!r}; its passes are: {known}")
        return self._passes[name]


def _reachable(server: str, ping: Callable[[], Awaitable[None]]) -> Check:
    """Make a check that fails while a server does not answer."""

    async def check() -> str | None:
        try:
            await ping()
        except (DatabaseUnavailable, BrokerUnavailable) as error:
            return f"{server}: {error}"
        return None

    check.__name__ = server
    return check


async def open_service(
    name: str,
    settings: ServiceSettings,
    *,
    measures: Iterable[Measure] = (),
    give_up_after: int | None = None,
    connect: Callable[[], Awaitable[Database]] | None = None,
) -> Service:
    """Connect to PostgreSQL and NATS; retries for ever unless `give_up_after` limits the attempts.

    A service with its own `connect` uses that pool for passes and requests.
    """

    async def reach(where: str, attempt: Callable[[], Awaitable[Result]]) -> Result:
        return await keep_trying(
            attempt,
            what=f"{where} is not reachable",
            faults=(DatabaseUnavailable, BrokerUnavailable),
            give_up_after=give_up_after,
        )

    async def open_pool(name: str, max_connections: int) -> Database:
        open_database = partial(
            Database.connect,
            settings.database_url,
            name=name,
            max_connections=max_connections,
            answer_seconds=settings.database_answer_seconds,
        )
        return await reach("PostgreSQL at HEADWAY_DATABASE_URL", connect or open_database)

    database = await open_pool(f"headway-{name}", settings.database_connections)
    requests = None
    if connect is None:
        requests = await open_pool(
            f"headway-{name}-requests", settings.database_request_connections
        )
    broker = await reach(
        "NATS at HEADWAY_NATS_URL",
        partial(
            Broker.connect,
            settings.nats_url,
            name=f"headway-{name}",
            credentials=settings.nats_creds,
            ping_seconds=settings.nats_ping_seconds,
        ),
    )
    return Service(name, database, broker, measures, requests=requests)
