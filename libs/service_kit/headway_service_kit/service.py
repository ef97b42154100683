"""A service: passes over one database and one broker, with health."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from headway_jetstream_kit import Broker, BrokerUnavailable, ConsumerMissing
from headway_jetstream_kit.tasks import end
from headway_postgres_kit import Database, DatabaseUnavailable
from headway_postgres_kit.database import ANSWER_SECONDS

from headway_service_kit.after_commit import new_counts
from headway_service_kit.health import Check, Health
from headway_service_kit.metrics import Measure, Meter, Readings
from headway_service_kit.own_metrics import own_measures, read_connections
from headway_service_kit.passes import SAFETY_POLL, Vitals, Wakeup, keep_running
from headway_service_kit.process import keep_trying
from headway_service_kit.settings import ServiceSettings

# What a pass may meet without it being a bug: it says so in a line and tries again.
EXPECTED_FAULTS = (DatabaseUnavailable, BrokerUnavailable, ConsumerMissing)

# How long a pass may take before it counts as hanging.
_PATIENCE = 2 * ANSWER_SECONDS + 5

RunOnce = Callable[[], Awaitable[float | None]]
Result = TypeVar("Result")


class Service:
    """Starts and stops passes together, and answers for their health."""

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
        # The pool of the passes, and one for requests of people, so that no burst delays a pass.
        self.database = database
        self.requests = requests or database
        self.counts = new_counts()
        self.broker = broker
        self.health: Health | None = None
        self._vitals: list[Vitals] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._wakeups: dict[str, Wakeup] = {}
        self._watchers: dict[str, Callable[[], None]] = {}
        self._own = own_measures(name)
        self.meter = Meter([*self._own.all(), *measures], answers=self._own.answers)
        self.meter.read_from(self._read_passes)
        self.meter.read_from(
            lambda: read_connections(self._own, self._databases, broker, self.counts)
        )

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
        # A pass on a database that hangs fails only after twice the time that an answer may
        # take: for the question, and for the roll-back.
        vitals = Vitals(name, patience=poll + _PATIENCE, heed=self._heed_pass)
        self._vitals.append(vitals)
        self._wakeups[name] = wakeup = wakeup or Wakeup()
        self._tasks[name] = asyncio.create_task(
            keep_running(
                run_once,
                vitals=vitals,
                wakeup=wakeup,
                expected_faults=EXPECTED_FAULTS,
                poll=poll,
                longest_backoff=longest_backoff,
            ),
            name=f"{self.name}-{name}",
        )

    async def answer_for_health(self, address: str, *, live: Sequence[Check] = ()) -> int:
        """Listen for health checks, with those of its own; returns the port."""
        self.health = Health(
            self.name,
            live=[*(vitals.silence for vitals in self._vitals), *live],
            ready=[
                self._database_answers,
                self._broker_answers,
                *(vitals.trouble for vitals in self._vitals),
            ],
            meters=[self.meter],
            counts=[self.counts],
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
        """Repeat a step of the start until it works; `/readyz` gives the reason meanwhile."""
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
        """Wait for the stop; a connection that is closed for good is a fault."""
        stopped = asyncio.create_task(stop.wait())
        closed = asyncio.create_task(self.broker.closed.wait())
        try:
            await asyncio.wait({stopped, closed}, return_when=asyncio.FIRST_COMPLETED)
            if closed.done():
                raise BrokerUnavailable(f"{self.broker.where}: the connection was closed for good")
        finally:
            await end([stopped, closed])
            await self.stop()

    def wake(self, name: str) -> None:
        """Let a kept pass run at once instead of at the end of its rest."""
        self._wakeup_of(name).call()

    def rests(self, name: str) -> bool:
        """Whether a kept pass is at rest, and nobody has woken it."""
        return self._wakeup_of(name).is_waited_for

    def watch(self, name: str, on_pass: Callable[[], None]) -> None:
        """Have somebody told whenever a kept pass has gone well."""
        self._watchers[name] = on_pass

    async def end_pass(self, name: str) -> None:
        """Stop one pass; the others go on."""
        await end([self._tasks.pop(name)])

    async def stop(self) -> None:
        """Stop everything; whatever a pass was at is taken up at the next start."""
        await end(list(self._tasks.values()))
        if self.health is not None:
            await self.health.stop()
        self.meter.stop()
        await self.broker.close()
        for database in self._databases:
            await database.close()

    def on_commit(self, tell: Callable[[list[Any]], None]) -> None:
        """Have somebody told what was noted in transactions, once they are committed."""
        for database in self._databases:
            database.on_commit = tell

    @property
    def _databases(self) -> list[Database]:
        return list({id(pool): pool for pool in (self.database, self.requests)}.values())

    def _heed_pass(self, name: str, seconds: float | None) -> None:
        if seconds is None:
            self.meter.add(self._own.pass_failures, name)
        else:
            self.meter.observe(self._own.pass_seconds, seconds, name)
            if name in self._watchers:
                self._watchers[name]()

    def _read_passes(self) -> Readings:
        return {self._own.pass_age: {(one.name,): one.age() for one in self._vitals}}

    def _wakeup_of(self, name: str) -> Wakeup:
        if name not in self._wakeups:
            kept = ", ".join(self._wakeups) or "none"
            raise KeyError(f"{self.name} keeps no pass {name!r}; its passes are: {kept}")
        return self._wakeups[name]

    async def _database_answers(self) -> str | None:
        try:
            await self.database.ping()
        except DatabaseUnavailable as error:
            return f"PostgreSQL: {error}"
        return None

    async def _broker_answers(self) -> str | None:
        try:
            await self.broker.ping()
        except BrokerUnavailable as error:
            return f"NATS: {error}"
        return None


async def open_service(
    name: str,
    settings: ServiceSettings,
    *,
    measures: Iterable[Measure] = (),
    give_up_after: int | None = None,
    connect: Callable[[], Awaitable[Database]] | None = None,
) -> Service:
    """Connect to what a service stands on; patiently, unless told when to give up.

    `connect` is for a service with a way of its own to the database, for all that it does.
    """

    async def reach(connect: Callable[[], Awaitable[Database]]) -> Database:
        return await keep_trying(
            connect,
            what="PostgreSQL at HEADWAY_DATABASE_URL is not reachable",
            faults=(DatabaseUnavailable,),
            give_up_after=give_up_after,
        )

    open_pool = functools.partial(
        Database.connect, settings.database_url, answer_seconds=settings.database_answer_seconds
    )
    database = await reach(
        connect
        or functools.partial(
            open_pool, name=f"headway-{name}", max_connections=settings.database_connections
        )
    )
    requests = database
    if connect is None:
        requests = await reach(
            functools.partial(
                open_pool,
                name=f"headway-{name}-requests",
                max_connections=settings.database_request_connections,
            )
        )
    broker = await keep_trying(
        lambda: Broker.connect(
            settings.nats_url,
            name=f"headway-{name}",
            credentials=settings.nats_creds,
            ping_seconds=settings.nats_ping_seconds,
        ),
        what="NATS at HEADWAY_NATS_URL is not reachable",
        faults=(BrokerUnavailable,),
        give_up_after=give_up_after,
    )
    return Service(name, database, broker, measures, requests=requests)
