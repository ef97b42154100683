"""What a job's body knows about its run."""

import threading
from collections.abc import Awaitable, Iterable
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from headway_contract.orders import OrderedRun

from headway.errors import ActivationUnavailable
from headway.worker.run_log import Reporter, RunLog


class Wanted(NamedTuple):
    """An activation as a body asks for it; without a key it gets one by its number."""

    manifest: str
    input: Any = None
    key: str | None = None


class Activator(Protocol):
    """Who wakes dependents for a run."""

    def activate(self, wanted: list[Wanted]) -> Awaitable[None]:
        """Wake all of them or none; done when awaited, or at once where nothing can await."""
        ...


class Context:
    """Handed to a job's body as its first argument."""

    def __init__(
        self,
        ordered: OrderedRun,
        job: str,
        *,
        activator: Activator | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        self._ordered = ordered
        self._activator = activator
        self._cancelled = threading.Event()
        self.job = job
        self._reporter = reporter
        self.log = RunLog(job, reporter)

    @property
    def run(self) -> UUID:
        """The id of this attempt. Hand it to other systems as an idempotency key of the attempt."""
        return self._ordered.run

    @property
    def work(self) -> UUID:
        """The work that this run is an attempt at; the same over all attempts."""
        return self._ordered.work

    @property
    def manifest(self) -> str | None:
        """The id of the manifest, if the work has one."""
        return self._ordered.manifest

    @property
    def attempt(self) -> int:
        """Which counted attempt this is, from 1."""
        return self._ordered.attempt

    @property
    def attempts(self) -> int:
        """How many counted attempts there may be."""
        return self._ordered.attempts

    @property
    def due_at(self) -> datetime | None:
        """The time for which the schedule fired, if a schedule did."""
        return self._ordered.due_at

    @property
    def cause(self) -> str:
        """Why this work exists."""
        return self._ordered.cause

    @property
    def cancelled(self) -> bool:
        """Whether the run was asked to stop. Long plain functions should look at it."""
        return self._cancelled.is_set()

    def progress(self, percent: float | None = None, message: str | None = None) -> None:
        """Tell how far the run is, in percent and in words; what is left out stays as it was.

        As often as you like: a few times a second the latest is passed on.
        """
        if self._reporter is not None:
            self._reporter.progress(percent, message)

    def activate(
        self,
        manifest: str,
        input: Any = None,  # noqa: A002 - what a job takes is called its input
        key: str | None = None,
    ) -> Awaitable[None]:
        """Wake a dormant dependent of this run's manifest, with an input.

            await ctx.activate("mail-report", Report(day=today))     # in an async body
            ctx.activate("mail-report", Report(day=today))           # in a plain function

        It counts as soon as this returns, whether the run then succeeds or not. `key` tells
        several activations of one dependent apart; by default it is their number in this run,
        so that a body which is tried again and does the same activates nothing twice.
        """
        return self._activate([Wanted(manifest, input, key)])

    def activate_many(self, activations: Iterable[tuple[str, Any]]) -> Awaitable[None]:
        """Wake several dependents, each given as (manifest, input): all of them, or none."""
        return self._activate([Wanted(manifest, given) for manifest, given in activations])

    def _activate(self, wanted: list[Wanted]) -> Awaitable[None]:
        if self._activator is None:
            raise ActivationUnavailable("this context belongs to no worker that could activate")
        return self._activator.activate(wanted)

    def ask_to_stop(self) -> None:
        """Called by the worker when the run should end early."""
        self._cancelled.set()
