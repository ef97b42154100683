"""A world of its own time, with the real services in it."""

import itertools
from collections import Counter
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self
from uuid import UUID

from headway import App, Client
from headway.define.calendar import did_you_mean
from headway_clock import monotonic
from headway_console.in_process import open_client
from msgspec import Struct

from headway_testing.awake import awake
from headway_testing.clock import VirtualClock, instant
from headway_testing.outages import SERVICES, Outage, ServiceName, down_at, next_change
from headway_testing.processes import Crew, Timed
from headway_testing.servers import run_servers
from headway_testing.settings import check as check_settings
from headway_testing.watch import Watch

# How long one moment of virtual time may really take before a test has lost its patience.
_PATIENCE_SECONDS = 60.0
# How long one usually takes is learned, and believed within these bounds.
_SHORTEST_MOMENT, _LONGEST_MOMENT = 0.01, 0.2
_TIDY_AFTER_MOMENTS = 300

# When each pass that goes by the clock has something to do next.
_Due = dict[Timed, datetime | None]


class Fire(Struct, frozen=True, kw_only=True):
    """One decision that made work, and how that ended."""

    manifest: str
    cause: str
    at: datetime
    due_at: datetime | None
    work: UUID
    outcome: str | None


class Skip(Struct, frozen=True, kw_only=True):
    """One decision that made none: for a due time, or for a stretch of them."""

    manifest: str
    first_due_at: datetime
    last_due_at: datetime
    reason: str


class _Inside(Struct, frozen=True):
    """What there is between the beginning of a world and its end."""

    crew: Crew
    watch: Watch


class World:
    """Runs an app's real services under a clock that a test owns."""

    def __init__(
        self, app: App, *, start: str | datetime, folder: Path, slots: int = 10, **settings: Any
    ) -> None:
        check_settings(settings, slots=slots)
        self.app = app
        self.clock = VirtualClock(instant(start))
        self._folder = folder
        self._slots = slots
        self._settings = settings
        self._outages: list[Outage] = []
        self._stack = AsyncExitStack()
        self._inside: _Inside | None = None
        self._has_begun = False
        # How long a moment usually takes until all is quiet, in real seconds, and when this began.
        self._usual = _SHORTEST_MOMENT
        self._moved_at = monotonic()
        self._fires: list[Fire] = []
        self._skips: list[Skip] = []
        self._manifests: set[str] = set()

    @property
    def now(self) -> datetime:
        """What the world's clock shows."""
        return self.clock.at

    @property
    def nats_url(self) -> str:
        """Where the world's NATS answers, for a client of one's own."""
        return self._crew.nats_url

    async def __aenter__(self) -> Self:
        """Start the servers and all services."""
        if self._has_begun:
            raise RuntimeError("a world is used once: make another one")
        # What is wrong with the app is told before anything is started.
        self.app.definitions()
        self._has_begun = True
        try:
            servers = await self._stack.enter_async_context(run_servers(self._folder))
            watch = await self._stack.enter_async_context(Watch.keep(servers))
            crew = Crew(
                self.app,
                self.clock,
                database_url=servers.database_url,
                nats_url=servers.nats_url,
                slots=self._slots,
                settings=self._settings,
            )
            self._stack.push_async_callback(crew.stop)
            await crew.bring_up(set(SERVICES))
        except BaseException:
            await self._stack.aclose()
            raise
        self._inside = _Inside(crew=crew, watch=watch)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop everything."""
        self._inside = None
        await self._stack.aclose()

    def client(self) -> AbstractAsyncContextManager[Client]:
        """Open a client of this world: `async with world.client() as headway: ...`."""
        crew = self._crew
        return open_client(crew.database_url, crew.nats_url, actor="world", now=lambda: self.now)

    def down(
        self, service: ServiceName, *, at: str | datetime | None = None, **duration: float
    ) -> None:
        """Plan an outage: `world.down("scheduler", hours=3)`, from now on or from a time."""
        if service not in SERVICES:
            raise ValueError(f"{service!r} cannot be down: name one of {', '.join(SERVICES)}")
        begins_at = self.now if at is None else instant(at)
        if begins_at < self.now:
            raise ValueError(f"an outage at {begins_at} is in the past: it is {self.now}")
        ends_at = begins_at + timedelta(**duration)
        if ends_at <= begins_at:
            raise ValueError("an outage takes time: say how long, as in hours=3")
        self._outages.append(Outage(service=service, begins_at=begins_at, ends_at=ends_at))

    async def run_for(self, **duration: float) -> None:
        """Let so much time pass: `await world.run_for(days=7)`."""
        await self.run_until(self.now + timedelta(**duration))

    async def run_until(self, when: str | datetime) -> None:
        """Let time pass; it jumps from one event to the next, while nothing is in flight."""
        until = instant(when)
        if until < self.now:
            raise ValueError(f"{until} is in the past: the world's clock shows {self.now}")
        async with awake():
            await self._pass_time(until)
        await self._read_ledger()

    def fires(self, manifest: str | None = None) -> list[Fire]:
        """What fired up to the last `run_until`, oldest first."""
        return [one for one in self._fires if manifest in (None, one.manifest)]

    def skips(self, manifest: str | None = None) -> list[Skip]:
        """What was skipped and why, oldest first."""
        return [one for one in self._skips if manifest in (None, one.manifest)]

    def assert_fired(
        self, manifest: str, *, times: int | None = None, outcome: str | None = None
    ) -> list[Fire]:
        """Fail unless a manifest fired, so many times and so ended if that is said."""
        if manifest not in self._manifests:
            raise AssertionError(self._nobody_declared(manifest))
        fired = [one for one in self.fires(manifest) if outcome in (None, one.outcome)]
        if (times is None and not fired) or (times is not None and len(fired) != times):
            wanted = "at least once" if times is None else f"{times} time(s)"
            ended = f" with the outcome {outcome!r}" if outcome else ""
            raise AssertionError(
                f"{manifest} should have fired {wanted}{ended} and fired {len(fired)} time(s)"
                f"{self._history_of(manifest)}"
            )
        return fired

    def assert_not_fired(self, manifest: str) -> None:
        """Fail if a manifest fired at all."""
        self.assert_fired(manifest, times=0)

    @property
    def _crew(self) -> Crew:
        return self._there().crew

    @property
    def _watch(self) -> Watch:
        return self._there().watch

    def _there(self) -> _Inside:
        if self._inside is None:
            raise RuntimeError(
                "the world has ended: only what it has recorded can still be looked at"
                if self._has_begun
                else "the world has not begun: use it as 'async with World(...) as world'"
            )
        return self._inside

    def _nobody_declared(self, manifest: str) -> str:
        """Why nothing can be said about a manifest; a slip in its name must not pass a test."""
        if not self._manifests:
            return f"nothing is known of {manifest} yet: let time pass first, with run_until"
        hint = did_you_mean(manifest, self._manifests)
        return f"there never was a manifest {manifest!r}{hint}"

    def _history_of(self, manifest: str) -> str:
        ends = Counter(str(one.outcome) for one in self.fires(manifest))
        reasons = Counter(one.reason for one in self.skips(manifest))
        return f"; outcomes: {dict(ends)}; skipped: {dict(reasons)}"

    async def _pass_time(self, until: datetime) -> None:
        """Go from one event to the next, as long as there are any until then."""
        await self._staff(self.now)
        for moment in itertools.count(1):
            due = await self._until_quiet()
            if moment % _TIDY_AFTER_MOMENTS == 0:
                await self._watch.tidy()
            change = next_change(self._outages, self.now)
            upcoming = min((one for one in (*due.values(), change) if one), default=None)
            if upcoming is None or upcoming > until:
                break
            await self._go_to(upcoming, due)
        await self._go_to(until, dict.fromkeys(due, until))
        await self._until_quiet()

    async def _go_to(self, at: datetime, due: _Due) -> None:
        """Set the clock, and let those who then have something to do go through with it."""
        # Who goes down at that time must not see it come, and who comes back must.
        await self._crew.bring_up(self._crew.up - down_at(self._outages, at))
        self.clock.advance(at)
        await self._staff(at)
        self._moved_at = monotonic()
        woken = [timed for timed, time in due.items() if time is not None and time <= at]
        await self._crew.work_through(woken, within=1.25 * self._usual)

    async def _staff(self, at: datetime) -> None:
        """Stop who is to be down at a time, and start who is to be up."""
        await self._crew.bring_up(set(SERVICES) - down_at(self._outages, at))

    async def _until_quiet(self) -> _Due:
        """Wait until nothing is in flight; returns for when all that is left waits."""
        deadline = monotonic() + _PATIENCE_SECONDS
        crew = self._crew
        while (seen := await self._watch.look(self.now, crew)).busy:
            crew.check()
            if monotonic() > deadline:
                await self._lose_patience(seen.busy)
            await crew.hear(within=self._usual / 4)
        # Looking costs what is being waited for, so learn when it is worth while.
        took = min(max(monotonic() - self._moved_at, _SHORTEST_MOMENT), _LONGEST_MOMENT)
        self._usual += (took - self._usual) / 8
        due: _Due = {("scheduler", "windows"): seen.windows, ("dispatcher", "gate"): seen.gate}
        return {("scheduler", "tick"): seen.tick, **due} if crew.ticks else due

    async def _lose_patience(self, busy: str) -> NoReturn:
        # A body that hangs would hold up the end of the world, too.
        self._crew.hurry()
        named = await self._watch.named(self.now)
        raise AssertionError(
            f"the world is still busy after {_PATIENCE_SECONDS:g} s at {self.now}: {busy}"
            f"{f' ({named})' if named else ''}"
        )

    async def _read_ledger(self) -> None:
        rows = await self._watch.decisions()
        self._manifests = await self._watch.declared()
        self._fires = [
            Fire(
                manifest=row["external_id"],
                cause=row["cause"],
                at=row["decided_at"],
                due_at=row["first_due_at"] if row["cause"].startswith("due:") else None,
                work=row["work_id"],
                outcome=row["outcome"],
            )
            for row in rows
            if row["decision"] == "queued"
        ]
        self._skips = [
            Skip(
                manifest=row["external_id"],
                first_due_at=row["first_due_at"],
                last_due_at=row["last_due_at"],
                reason=row["reason"],
            )
            for row in rows
            if row["decision"] == "skipped"
        ]
