"""A world: the real services of an app under a virtual clock."""

import itertools
from collections import Counter
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Self
from uuid import UUID

from headway import App, Client
from headway.define.calendar import did_you_mean
from headway_clock import monotonic
from headway_console.wiring import open_client
from msgspec import Struct

from headway_testing.clock import VirtualClock, instant
from headway_testing.processes import SERVICES, Processes, ServiceName, TimedPass, check_settings
from headway_testing.servers import run_servers
from headway_testing.watch import Watch, queries

# Longest real time of one moment of virtual time.
_PATIENCE_SECONDS = 60.0
# How long to wait for an outcome before the first look at a moment, and before each later one. A
# look delays the services.
_FIRST_LOOK_SECONDS, _NEXT_LOOK_SECONDS = 0.04, 0.01
_VACUUM_AFTER_MOMENTS = 300

# When each timed pass is due next.
_Due = dict[TimedPass, datetime | None]


class Fire(Struct, frozen=True, kw_only=True):
    """A decision that queued work, and the outcome of the work."""

    manifest: str
    cause: str
    at: datetime
    due_at: datetime | None
    work: UUID
    outcome: str | None


class Skip(Struct, frozen=True, kw_only=True):
    """A decision to skip a due time or a range of due times."""

    manifest: str
    first_due_at: datetime
    last_due_at: datetime
    reason: str


class _Outage(Struct, frozen=True, kw_only=True):
    """A service is down from a time until just before another."""

    service: ServiceName
    begins_at: datetime
    ends_at: datetime


class World:
    """Runs the real services of an app under a clock that a test sets."""

    def __init__(
        self, app: App, *, start: str | datetime, folder: Path, slots: int = 10, **settings: Any
    ) -> None:
        check_settings(settings, slots=slots)
        self.app = app
        self.clock = VirtualClock(instant(start))
        self._folder = folder
        self._slots = slots
        self._settings = settings
        self._outages: list[_Outage] = []
        self._stack = AsyncExitStack()
        self._open_watch: Watch | None = None
        self._has_begun = False
        self._fires: list[Fire] = []
        self._skips: list[Skip] = []
        self._manifests: set[str] = set()

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self.clock.at

    @property
    def nats_url(self) -> str:
        """The URL of the world's NATS, for other clients."""
        return self._processes.servers.nats_url

    async def __aenter__(self) -> Self:
        """Start the servers and all services."""
        if self._has_begun:
            raise RuntimeError("a world can be used once: make another")
        # Raises the problems of the app before anything is started.
        self.app.definitions()
        self._has_begun = True
        try:
            servers = await self._stack.enter_async_context(run_servers(self._folder))
            processes = Processes(
                self.app, self.clock, servers, slots=self._slots, settings=self._settings
            )
            self._stack.push_async_callback(processes.run_only, set())
            await processes.run_only(set(SERVICES))
        except BaseException:
            await self._stack.aclose()
            raise
        self._open_watch = Watch(processes)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop everything."""
        self._open_watch = None
        await self._stack.aclose()

    def client(self) -> AbstractAsyncContextManager[Client]:
        """Open a client of this world: `async with world.client() as headway: ...`."""
        servers = self._processes.servers
        return open_client(
            servers.database_url, servers.nats_url, actor="world", now=lambda: self.now
        )

    def down(
        self, service: ServiceName, *, at: str | datetime | None = None, **duration: float
    ) -> None:
        """Plan an outage, from now or from a time on: `world.down("scheduler", hours=3)`."""
        if service not in SERVICES:
            raise ValueError(f"unknown service {service!r}: name one of {', '.join(SERVICES)}")
        begins_at = self.now if at is None else instant(at)
        if begins_at < self.now:
            raise ValueError(f"an outage at {begins_at} is in the past: it is {self.now}")
        ends_at = begins_at + timedelta(**duration)
        if ends_at <= begins_at:
            raise ValueError("an outage needs a duration: say how long, as in hours=3")
        self._outages.append(_Outage(service=service, begins_at=begins_at, ends_at=ends_at))

    async def run_for(self, **duration: float) -> None:
        """Let a duration pass: `await world.run_for(days=7)`."""
        await self.run_until(self.now + timedelta(**duration))

    async def run_until(self, when: str | datetime) -> None:
        """Let time pass; it jumps from event to event, while nothing is in flight."""
        until = instant(when)
        if until < self.now:
            raise ValueError(f"{until} is in the past: the world's clock shows {self.now}")
        await self._pass_time(until)
        fetch = self._watch.fetch
        self._fires = [Fire(**row) for row in await fetch(queries["fires"])]
        self._skips = [Skip(**row) for row in await fetch(queries["skips"])]
        self._manifests = {row["subject"] for row in await fetch(queries["declared"])}

    def fires(self, manifest: str | None = None) -> list[Fire]:
        """Return the fires up to the last `run_until`, oldest first."""
        return [fire for fire in self._fires if manifest in (None, fire.manifest)]

    def skips(self, manifest: str | None = None) -> list[Skip]:
        """Return the skips up to the last `run_until`, oldest first."""
        return [skip for skip in self._skips if manifest in (None, skip.manifest)]

    def assert_fired(
        self, manifest: str, *, times: int | None = None, outcome: str | None = None
    ) -> list[Fire]:
        """Fail unless a manifest fired; `times` is the exact number, `outcome` counts only those.

        An unknown manifest fails too, so that a misspelled name does not pass a test.
        """
        if not self._manifests:
            raise AssertionError(f"{manifest} is not known yet: let time pass first with run_until")
        if manifest not in self._manifests:
            hint = did_you_mean(manifest, self._manifests)
            raise AssertionError(f"there never was a manifest {manifest!r}{hint}")
        fired = [fire for fire in self.fires(manifest) if outcome in (None, fire.outcome)]
        if (times is None and not fired) or (times is not None and len(fired) != times):
            ended = f" with the outcome {outcome!r}" if outcome else ""
            outcomes = Counter(str(fire.outcome) for fire in self.fires(manifest))
            reasons = Counter(skip.reason for skip in self.skips(manifest))
            raise AssertionError(
                f"{manifest}: expected {'some' if times is None else times} fires{ended}, "
                f"found {len(fired)}; outcomes: {dict(outcomes)}; skipped: {dict(reasons)}"
            )
        return fired

    def assert_not_fired(self, manifest: str) -> None:
        """Fail if a manifest fired at all."""
        self.assert_fired(manifest, times=0)

    @property
    def _watch(self) -> Watch:
        if self._open_watch is None:
            raise RuntimeError(
                "the world has ended: only its recorded fires and skips can still be read"
                if self._has_begun
                else "the world has not begun: use it as 'async with World(...) as world'"
            )
        return self._open_watch

    @property
    def _processes(self) -> Processes:
        return self._watch.processes

    async def _pass_time(self, until: datetime) -> None:
        """Go from event to event until a time."""
        await self._apply_outages()
        for moment in itertools.count(1):
            due = await self._until_quiet()
            if moment % _VACUUM_AFTER_MOMENTS == 0:
                await self._watch.fetch(queries["vacuum"])
            changes = {
                time for outage in self._outages for time in (outage.begins_at, outage.ends_at)
            }
            times = (*due.values(), *(time for time in changes if time > self.now))
            upcoming = min((time for time in times if time), default=None)
            if upcoming is None or upcoming > until:
                break
            await self._go_to(upcoming, due)
        await self._go_to(until, dict.fromkeys(due, until))
        await self._until_quiet()

    async def _go_to(self, at: datetime, due: _Due) -> None:
        """Set the clock, and let the passes run that are due then."""
        processes = self._processes
        # A service that goes down at that time must not see it, and one that comes back must.
        await processes.run_only(processes.up - self._down_at(at))
        self.clock.advance(at)
        await self._apply_outages()
        passes = [timed for timed, time in due.items() if time is not None and time <= at]
        await processes.wake(passes, within=_FIRST_LOOK_SECONDS)

    async def _apply_outages(self) -> None:
        """Stop the services that are down now, and start the others."""
        await self._processes.run_only(set(SERVICES) - self._down_at(self.now))

    def _down_at(self, at: datetime) -> set[ServiceName]:
        return {
            outage.service for outage in self._outages if outage.begins_at <= at < outage.ends_at
        }

    async def _until_quiet(self) -> _Due:
        """Wait until nothing is in flight; returns when the timed passes are due."""
        deadline = monotonic() + _PATIENCE_SECONDS
        processes = self._processes
        while (seen := await self._watch.look(self.now)).busy:
            processes.check()
            if monotonic() > deadline:
                await self._fail_busy(seen.busy)
            await processes.wait_for_outcome(within=_NEXT_LOOK_SECONDS)
        due: _Due = {("scheduler", "windows"): seen.windows, ("dispatcher", "gate"): seen.gate}
        return {("scheduler", "tick"): seen.tick, **due} if processes.ticks else due

    async def _fail_busy(self, busy: str) -> NoReturn:
        # A body that hangs would also delay the end of the world.
        self._processes.abandon_runs()
        names = await self._watch.name_pending(self.now)
        raise AssertionError(
            f"the world is still busy after {_PATIENCE_SECONDS:g} s at {self.now}: {busy}"
            f"{f' ({names})' if names else ''}"
        )
