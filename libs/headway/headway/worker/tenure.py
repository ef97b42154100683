"""A lease that this worker holds: its runs, one after the other, until all of them have ended.

Events of the last few milliseconds share a message, so short runs of one lease cost few of
them. The price is that a start may not be stored yet when its body already runs; whoever
takes a lease of several runs away therefore lets all of them come back one by one.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import UUID

from headway_clock import monotonic
from headway_contract import Event, encode
from headway_contract.lifecycle import (
    LOST_CONTACT,
    WORKER_STOPPED,
    Failure,
    RunCancelled,
    RunCompleted,
    RunFailed,
)
from headway_contract.orders import OrderedRun
from headway_jetstream_kit import Broker
from headway_jetstream_kit.tasks import end

from headway.define.jobs import Job
from headway.worker.execution import Execution, Outcome, StopReason
from headway.worker.fork_server import Nursery
from headway.worker.leases import Lease

logger = logging.getLogger(__name__)

LINGER_SECONDS = 0.005
# Above so many bytes, what was gathered is said before more is added.
_LARGE = 128 * 1024
# A dispatcher that lags behind asks for renewals that it does not need.
_RENEWAL_PAUSE_SECONDS = 30.0

_NEVER_BEGUN: dict[StopReason, Failure] = {
    "worker_stopped": Failure(
        kind=WORKER_STOPPED, message="the worker stopped before the run began"
    ),
    "lost_contact": Failure(
        kind=LOST_CONTACT, message="the worker lost contact before the run began"
    ),
}


# Told of every body that ended: its job, how it ended in a word, and how many seconds it took.
OnEnded = Callable[[str, str, float], None]


def _in_a_word(outcome: Outcome | None) -> str:
    match outcome:
        case RunCompleted():
            return "completed"
        case RunFailed():
            return "failed"
        case RunCancelled():
            return "cancelled"
        case None:
            return "lost"


class Tenure:
    """One lease, from its claim to the outcome of its last run."""

    def __init__(
        self,
        lease: Lease,
        job: Job,
        broker: Broker,
        *,
        nursery: Nursery | None,
        on_ended: OnEnded | None = None,
    ) -> None:
        self.lease = lease
        self._job = job
        self._broker = broker
        self._nursery = nursery
        self._on_ended = on_ended
        self._current: Execution | None = None
        self._cancelled: dict[UUID, str] = {}
        self._begin_no_more: StopReason | None = None
        self._unsaid: list[Event] = []
        self._unsaid_bytes = 0
        self._unsaid_since = 0.0
        self._speaking: asyncio.Task[None] | None = None
        # Most leases end before they need them: a timer costs less than a task.
        self._soon: asyncio.TimerHandle | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def running(self) -> list[UUID]:
        """The runs whose body has begun and not ended."""
        return [] if self._current is None else [self._current.ordered.run]

    async def serve(self) -> None:
        """Run all runs of the lease and tell their outcomes."""
        self._renew_later()
        try:
            for index, ordered in enumerate(self.lease.order.runs):
                if self.lease.lost:
                    return
                if ordered.run not in self.lease.ended_runs:
                    await self._serve_one(index, ordered)
            await self._say()
            if self._speaking is not None:
                await self._speaking
        finally:
            for timer in (self._soon, self._renewal):
                if timer is not None:
                    timer.cancel()
            background = (self._speaking, self._renewing)
            await end([task for task in background if task is not None])

    def cancel(self, run: UUID, reason: str) -> None:
        """End one run early, or never begin it; the others go on."""
        self._cancelled[run] = reason
        if self._current is not None and self._current.ordered.run == run:
            self._current.stop("cancelled", reason)

    def release(self) -> None:
        """The lease is no longer ours: stop, and say nothing more."""
        self.lease.lost = True
        if self._current is not None:
            self._current.stop("released")

    def renew_now(self) -> None:
        """Say now that the lease is held: the dispatcher knows no claim of it."""
        quiet = monotonic() - self.lease.spoke_at >= _RENEWAL_PAUSE_SECONDS
        if quiet and (self._renewing is None or self._renewing.done()):
            if self._renewal is not None:
                self._renewal.cancel()
            self._renew()

    def begin_no_more(self, reason: StopReason) -> None:
        """Hand back every run that has not begun."""
        self._begin_no_more = self._begin_no_more or reason

    def stop(self, reason: StopReason) -> None:
        """Hand back all runs, the one that runs included."""
        self.begin_no_more(reason)
        if self._current is not None:
            self._current.stop(reason)

    async def _serve_one(self, index: int, ordered: OrderedRun) -> None:
        unbegun = self._why_not_begin(ordered.run)
        if unbegun is not None:
            await self._tell(self.lease.event(unbegun, traceparent=ordered.traceparent))
            return
        execution = Execution(self._job, ordered, self.lease, self._broker, nursery=self._nursery)
        self._current = execution
        began = monotonic()
        try:
            if len(self.lease.order.runs) > 1:
                await self._tell(self.lease.started(index))
            outcome = await execution.run()
        finally:
            self._current = None
        if self._on_ended is not None:
            self._on_ended(self._job.name, _in_a_word(outcome), monotonic() - began)
        if outcome is not None:
            await self._tell(self.lease.event(outcome, traceparent=execution.traceparent))

    def _why_not_begin(self, run: UUID) -> RunCancelled | RunFailed | None:
        """The outcome of a run that is not to begin at all."""
        rights = self.lease.credentials
        if run in self._cancelled:
            return RunCancelled(**rights, run=run, reason=self._cancelled[run])
        if self._begin_no_more is not None:
            return RunFailed(**rights, run=run, failure=_NEVER_BEGUN[self._begin_no_more])
        return None

    async def _tell(self, event: Event) -> None:
        """Say an event soon, together with its neighbours in time."""
        if not self._unsaid:
            self._unsaid_since = monotonic()
        self._unsaid.append(event)
        self._unsaid_bytes += len(encode(event))
        waited = monotonic() - self._unsaid_since
        alone = len(self.lease.order.runs) == 1
        if alone or waited >= LINGER_SECONDS or self._unsaid_bytes > _LARGE:
            await self._say()
        elif self._soon is None and (self._speaking is None or self._speaking.done()):
            self._soon = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._speak)

    def _speak(self) -> None:
        """Say what was gathered, and what is gathered while that is being said."""

        async def speak() -> None:
            while self._unsaid:
                await self._say()

        self._soon = None
        self._speaking = asyncio.create_task(speak())

    async def _say(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        events, self._unsaid, self._unsaid_bytes = self._unsaid, [], 0
        if events and await self.lease.say(*events) == "lost" and self._current is not None:
            self._current.stop("released")

    def _renew_later(self) -> None:
        """Keep the lease's last message from expiring in the stream."""
        every = self.lease.order.renew_seconds
        if every:
            self._renewal = asyncio.get_running_loop().call_later(every, self._renew)

    def _renew(self) -> None:
        async def renew() -> None:
            if await self.lease.renew() == "stored":
                self._renew_later()
            elif self._current is not None:
                self._current.stop("released")

        self._renewing = asyncio.create_task(renew())
