"""The services of a world: their settings, their starts and stops, and the waits for them."""

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import Any, Literal, get_args

import msgspec
from headway import App
from headway.worker import Worker, WorkerSettings
from headway_contract.fitting import problem_of
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.wiring import start_dispatcher
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.service import Service

from headway_testing.clock import VirtualClock
from headway_testing.servers import Servers

ServiceName = Literal["scheduler", "dispatcher", "worker"]
SERVICES: tuple[ServiceName, ...] = get_args(ServiceName)

# A pass that depends on schedule time: its service and its name.
TimedPass = tuple[ServiceName, str]

# A test may simulate years, and all of their history is kept.
_HISTORY_DAYS = 36_500.0
_DEFAULTS = {
    "max_entries_per_cycle": None,
    "provision": "manual",
    "dead_letter_days": _HISTORY_DAYS,
    "history_days": _HISTORY_DAYS,
}


class Processes:
    """Scheduler, dispatcher and worker of a world."""

    def __init__(
        self,
        app: App,
        clock: VirtualClock,
        servers: Servers,
        *,
        slots: int,
        settings: dict[str, Any],
    ) -> None:
        self.servers = servers
        # The number of successful intake passes.
        self.received = 0
        # Whether the scheduler fires when it is up.
        self.ticks = settings.get("tick", "on") == "on"
        self._app = app
        self._clock = clock
        self._slots = slots
        urls = {"database_url": servers.database_url, "nats_url": servers.nats_url}
        self._settings = _DEFAULTS | settings | urls
        self._services: dict[ServiceName, Service] = {}
        self._worker: tuple[asyncio.Event, asyncio.Task[None], Broker] | None = None
        self._outcomes = asyncio.Event()
        self._abandons_runs = False

    @property
    def up(self) -> set[ServiceName]:
        """The services that are up."""
        running: set[ServiceName] = set(self._services)
        return running | {"worker"} if self._worker is not None else running

    async def run_only(self, wanted: set[ServiceName]) -> None:
        """Start and stop services until exactly these are up, in the order of their needs."""
        for name in ("scheduler", "worker", "dispatcher"):
            if name in self.up and name not in wanted:
                await self._end(name)
        for name in ("dispatcher", "worker", "scheduler"):
            if name in wanted and name not in self.up:
                await self._begin(name)

    async def wake(self, passes: Iterable[TimedPass], *, within: float) -> None:
        """Wake passes after the clock was set, and wait until an outcome has probably arrived."""
        self._outcomes.clear()
        for service, name in passes:
            if service in self._services:
                self._services[service].wake(name)
        await self.wait_for_outcome(within=within)

    async def wait_for_outcome(self, *, within: float) -> None:
        """Wait until the scheduler has received something, at most this long.

        Nearly every moment ends so, and an earlier look at the tables would mostly be in vain.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._outcomes.wait()
        self._outcomes.clear()

    def check(self) -> None:
        """Raise if the worker has ended by itself."""
        if self._worker is not None and self._worker[1].done():
            self._worker[1].result()
            raise RuntimeError("the worker ended by itself")

    def abandon_runs(self) -> None:
        """Let the worker stop without waiting for its runs, one of which may hang."""
        self._abandons_runs = True

    async def _begin(self, name: ServiceName) -> None:
        if name == "worker":
            broker = await Broker.connect(self.servers.nats_url, name="headway-world")
            worker = Worker(self._app, broker, WorkerSettings(worker_slots=self._slots))
            stop = asyncio.Event()
            self._worker = (stop, asyncio.create_task(worker.run(stop)), broker)
            return
        if name == "scheduler":
            settings = SchedulerSettings(**self._fields(SchedulerSettings))
            service = await start_scheduler(settings, self._app.definitions(), clock=self._clock)
        else:
            wanted = DispatcherSettings(**self._fields(DispatcherSettings))
            service = await start_dispatcher(wanted, clock=self._clock)
        self._services[name] = service
        service.watch("intake", partial(self._count_intake, name))

    def _fields(self, struct: type[msgspec.Struct]) -> dict[str, Any]:
        """Return the settings of a service."""
        known = struct.__struct_fields__
        return {name: value for name, value in self._settings.items() if name in known}

    def _count_intake(self, name: ServiceName) -> None:
        self.received += 1
        if name == "scheduler":
            self._outcomes.set()

    async def _end(self, name: ServiceName) -> None:
        if name != "worker":
            await self._services.pop(name).stop()
        elif self._worker is not None:
            stop, task, broker = self._worker
            self._worker = None
            if self._abandons_runs:
                # A worker whose connection is closed for good abandons its runs.
                await broker.close()
                with contextlib.suppress(BrokerUnavailable):
                    await task
                return
            stop.set()
            await task
            await broker.close()


def check_settings(settings: dict[str, Any], *, slots: int) -> None:
    """Raise for unknown names and for invalid values of the settings that a test gives a world."""
    types = {
        field.name: field.type
        for struct in (SchedulerSettings, DispatcherSettings)
        for field in msgspec.structs.fields(struct)
        if field.name not in ("database_url", "nats_url")
    }
    unknown = set(settings) - set(types)
    if unknown:
        raise TypeError(f"a world has no setting {', '.join(sorted(unknown))}")
    worker_types = {field.name: field.type for field in msgspec.structs.fields(WorkerSettings)}
    types["slots"] = worker_types["worker_slots"]
    given = {**settings, "slots": slots}
    found = {name: problem_of(value, types[name]) for name, value in given.items()}
    problems = [f"{name} {problem}" for name, problem in found.items() if problem is not None]
    if problems:
        raise ValueError("; ".join(problems))
