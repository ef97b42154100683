"""The services of a world: who is up, and how they are stopped and started."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any

from headway import App
from headway.worker import Worker, WorkerSettings
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.wiring import start_dispatcher
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_scheduler.settings import SchedulerSettings
from headway_scheduler.wiring import start_scheduler
from headway_service_kit.service import Service

from headway_testing.clock import VirtualClock
from headway_testing.outages import ServiceName

# A pass that goes by the clock, and so must be told when it was set: its service and its name.
Timed = tuple[ServiceName, str]


class Crew:
    """Scheduler, dispatcher and worker of one world."""

    def __init__(
        self,
        app: App,
        clock: VirtualClock,
        *,
        database_url: str,
        nats_url: str,
        slots: int,
        settings: dict[str, Any],
    ) -> None:
        self.database_url = database_url
        self.nats_url = nats_url
        self._app = app
        self._clock = clock
        self._urls = {"database_url": database_url, "nats_url": nats_url}
        self._slots = slots
        self._settings = settings
        self._services: dict[ServiceName, Service] = {}
        self._worker: tuple[asyncio.Event, asyncio.Task[None], Broker] | None = None
        self._outcomes = asyncio.Event()
        # How often a service has told another one something, and taken in what it was told.
        self.told = 0
        self.taken_in = 0
        self._hurries = False

    @property
    def up(self) -> set[ServiceName]:
        """Who is up."""
        running: set[ServiceName] = set(self._services)
        return running | {"worker"} if self._worker is not None else running

    @property
    def tells_nothing(self) -> bool:
        """Whether nobody is just telling another one something."""
        return all(service.rests("relay") for service in self._services.values())

    @property
    def ticks(self) -> bool:
        """Whether the scheduler fires when it is up."""
        return bool(self._settings.get("tick", "on") == "on")

    async def bring_up(self, wanted: set[ServiceName]) -> None:
        """Start and stop until exactly these are up, in the order in which they need each other."""
        for name in ("scheduler", "worker", "dispatcher"):
            if name in self.up and name not in wanted:
                await self._end(name)
        for name in ("dispatcher", "worker", "scheduler"):
            if name in wanted and name not in self.up:
                await self._begin(name)

    async def work_through(self, woken: Iterable[Timed], *, within: float) -> None:
        """Tell passes that the clock was set, and wait until an end of theirs may be near."""
        self._outcomes.clear()
        for service, timed in woken:
            if service in self._services:
                self._services[service].wake(timed)
        await self.hear(within=within)

    async def hear(self, *, within: float) -> None:
        """Wait until the scheduler has taken something in, but not longer than this.

        That is how nearly everything ends, so looking earlier would mostly be for nothing.
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

    def hurry(self) -> None:
        """From now on let no body finish: one that hangs would keep the worker from stopping."""
        self._hurries = True

    async def stop(self) -> None:
        """Stop everybody."""
        await self.bring_up(set())

    async def _begin(self, name: ServiceName) -> None:
        if name == "scheduler":
            fields = {
                "max_entries_per_cycle": None,
                # A test may look at years, and wants to see all of them.
                "history_days": 36_500.0,
                **self._urls,
                **self._of(SchedulerSettings),
            }
            scheduler = await start_scheduler(
                SchedulerSettings(**fields), self._app.definitions(), clock=self._clock
            )
            scheduler.watch("relay", self._note_told)
            scheduler.watch("intake", self._note_outcomes)
            self._services[name] = scheduler
        elif name == "dispatcher":
            fields = {
                "provision": "manual",
                "dead_letter_days": 36_500.0,
                "history_days": 36_500.0,
                **self._urls,
                **self._of(DispatcherSettings),
            }
            dispatcher = await start_dispatcher(DispatcherSettings(**fields), clock=self._clock)
            dispatcher.watch("relay", self._note_told)
            dispatcher.watch("intake", self._note_work)
            self._services[name] = dispatcher
        else:
            await self._begin_worker()

    def _note_told(self) -> None:
        self.told += 1

    def _note_work(self) -> None:
        self.taken_in += 1

    def _note_outcomes(self) -> None:
        self.taken_in += 1
        self._outcomes.set()

    async def _begin_worker(self) -> None:
        broker = await Broker.connect(self.nats_url, name="headway-world")
        worker = Worker(self._app, broker, WorkerSettings(worker_slots=self._slots))
        stop = asyncio.Event()
        self._worker = (stop, asyncio.create_task(worker.run(stop)), broker)

    async def _end(self, name: ServiceName) -> None:
        if name != "worker":
            await self._services.pop(name).stop()
            return
        assert self._worker is not None  # noqa: S101 - only asked for when it is up
        stop, task, broker = self._worker
        self._worker = None
        if self._hurries:
            # To a worker whose connection is lost for good, what it runs is lost, too.
            await broker.close()
            with contextlib.suppress(BrokerUnavailable):
                await task
            return
        stop.set()
        await task
        await broker.close()

    def _of(self, struct: type[Any]) -> dict[str, Any]:
        """The settings among those given that this service knows."""
        known = set(struct.__struct_fields__)
        return {name: value for name, value in self._settings.items() if name in known}
