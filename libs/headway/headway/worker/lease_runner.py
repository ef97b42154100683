"""Run the runs of one lease, one after the other, until all of them have ended.

The events of a lease of several runs are published together, at its end or after a short time, so
short runs cost few messages. A start may therefore not be stored yet when its body already runs: if
the dispatcher takes such a lease away, it orders all of its runs again, one by one.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from headway_clock import monotonic, utc_now
from headway_contract import Event, encode, lifecycle
from headway_contract.orders import OrderedRun
from headway_jetstream_kit.tasks import end
from msgspec import structs
from msgspec.json import encode as encode_data

from headway.define.jobs import Job
from headway.worker.execution import Execution, Outcome, StopReason
from headway.worker.fork_server import ForkServer
from headway.worker.leases import Lease

# How long an event of a lease of several runs may wait for others: the first, and this much for
# each lease that the worker runs. So a worker publishes about a hundred messages a second.
LINGER_SECONDS = 0.05
_LINGER_OF_EACH = 0.01
# Pending events above this size are published at once.
_LARGE = 128 * 1024
# A dispatcher that lags behind asks for renewals that it does not need.
_RENEWAL_PAUSE_SECONDS = 30.0

_NOT_STARTED: dict[StopReason, tuple[str, str]] = {
    "worker_stopped": (lifecycle.WORKER_STOPPED, "the worker stopped before the run began"),
    "lost_contact": (lifecycle.LOST_CONTACT, "the worker lost contact before the run began"),
    "handed_back": (lifecycle.HANDED_BACK, "runs before it in its lease took too long"),
}

_OUTCOME_NAMES: dict[type, str] = {
    lifecycle.RunCompleted: "completed",
    lifecycle.RunFailed: "failed",
    lifecycle.RunCancelled: "cancelled",
    type(None): "lost",
}

# Called with the job, the outcome in a word and the seconds of every body that ended.
OnEnded = Callable[[str, str, float], None]


@dataclass(eq=False, repr=False)  # the token of an order is secret
class LeaseRunner:
    """One lease that this worker holds, from its claim to the outcome of its last run."""

    lease: Lease
    job: Job
    fork_server: ForkServer | None
    on_ended: OnEnded | None
    # How many leases the worker runs.
    count_leases: Callable[[], int] = lambda: 1
    _current: Execution | None = None
    _cancelled: dict[UUID, str] = field(default_factory=dict)
    _start_no_more: StopReason | None = None
    # The index of the run that begins next.
    _next: int = 0
    # When the body of the current run began, and whether an event has said so.
    _began: float = 0.0
    _began_at: datetime = field(default_factory=utc_now)
    _is_start_reported: bool = False
    _completed: list[lifecycle.CompletedRun] = field(default_factory=list)
    _pending: list[Event] = field(default_factory=list)
    _pending_bytes: int = 0
    _flushing: asyncio.Task[None] | None = None
    # Most leases end before they need these: a timer costs less than a task.
    _flush_timer: asyncio.TimerHandle | None = None
    _renewal: asyncio.TimerHandle | None = None
    _hand_back_timer: asyncio.TimerHandle | None = None
    _renewing: asyncio.Task[None] | None = None

    @property
    def running(self) -> list[UUID]:
        """The runs whose body has begun and not ended."""
        return [] if self._current is None else [self._current.ordered.run]

    async def run(self) -> None:
        """Run all runs of the lease and publish their outcomes."""
        self._schedule_renewal()
        self._schedule_hand_back()
        try:
            runs = self.lease.order.runs
            while self._next < len(runs):
                if self.lease.lost:
                    return
                ordered = runs[self._next]
                self._next += 1
                if ordered.run not in self.lease.ended_runs:
                    await self._run_next(ordered)
            if self._flushing is not None:
                await self._flushing
            await self._flush()
        finally:
            for timer in (self._flush_timer, self._renewal, self._hand_back_timer):
                if timer is not None:
                    timer.cancel()
            background = (self._flushing, self._renewing)
            await end([task for task in background if task is not None])

    def cancel(self, run: UUID, reason: str) -> None:
        """End one run early, or never start it; the others continue."""
        self._cancelled[run] = reason
        if self._current is not None and self._current.ordered.run == run:
            self._current.stop("cancelled", reason)

    def release(self) -> None:
        """Stop and publish nothing more, because another owner has the lease."""
        self.lease.lost = True
        if self._current is not None:
            self._current.stop("released")

    def renew_now(self) -> None:
        """Renew the lease now, because the dispatcher knows no claim of it."""
        quiet = monotonic() - self.lease.published_at >= _RENEWAL_PAUSE_SECONDS
        if quiet and (self._renewing is None or self._renewing.done()):
            if self._renewal is not None:
                self._renewal.cancel()
            self._renew()

    def start_no_more(self, reason: StopReason) -> None:
        """Hand back every run that has not begun."""
        self._start_no_more = self._start_no_more or reason

    def _hand_back(self) -> None:
        """Hand back the runs behind the current one now, because it takes longer than expected."""
        self.start_no_more("handed_back")
        runs = self.lease.order.runs
        for ordered in runs[self._next :]:
            outcome = self._outcome_without_start(ordered.run)
            if outcome is not None and ordered.run not in self.lease.ended_runs:
                self._append(self.lease.event(outcome, traceparent=ordered.traceparent))
        self._next = len(runs)
        if self._flushing is None:
            self._flush_in_background()

    def _schedule_hand_back(self) -> None:
        seconds = self.lease.order.hand_back_seconds
        if seconds is not None and len(self.lease.order.runs) > 1:
            loop = asyncio.get_running_loop()
            self._hand_back_timer = loop.call_later(seconds, self._hand_back)

    def stop(self, reason: StopReason) -> None:
        """Hand back all runs, the running one included."""
        self.start_no_more(reason)
        if self._current is not None:
            self._current.stop(reason)

    async def _run_next(self, ordered: OrderedRun) -> None:
        not_started = self._outcome_without_start(ordered.run)
        if not_started is not None:
            self._append(self.lease.event(not_started, traceparent=ordered.traceparent))
            await self._flush_when_due()
            return
        execution = Execution(self.job, ordered, self.lease, self.fork_server)
        self._current = execution
        self._began, self._began_at = monotonic(), utc_now()
        self._is_start_reported = not self._is_shared
        self._schedule_flush()
        try:
            outcome = await execution.run()
        finally:
            self._current = None
        seconds = monotonic() - self._began if execution.seconds is None else execution.seconds
        if self.on_ended is not None:
            self.on_ended(self.job.name, _OUTCOME_NAMES[type(outcome)], seconds)
        if outcome is not None:
            self._add_outcome(ordered, outcome, seconds, execution.traceparent)
            await self._flush_when_due()

    @property
    def _is_shared(self) -> bool:
        """Whether the lease has several runs; the start of a single one is in its claim."""
        return len(self.lease.order.runs) > 1

    def _add_outcome(
        self, ordered: OrderedRun, outcome: Outcome, seconds: float, context: str | None
    ) -> None:
        if not isinstance(outcome, lifecycle.RunCompleted):
            if not self._is_start_reported:
                self._append(self.lease.started(ordered, at=self._began_at))
            self._append(self.lease.event(outcome, traceparent=context))
        elif self._is_shared:
            completed = lifecycle.CompletedRun(
                run=ordered.run,
                started_at=self._began_at,
                seconds=seconds,
                output=outcome.output,
                traceparent=context,
            )
            self._completed.append(completed)
            self._pending_bytes += len(encode_data(completed))
        else:
            completed_event = structs.replace(outcome, seconds=seconds)
            self._append(self.lease.event(completed_event, traceparent=context))

    def _outcome_without_start(self, run: UUID) -> Outcome | None:
        """Return the outcome of a run that must not start, or `None` if it may."""
        fields = {**self.lease.credentials, "run": run}
        if run in self._cancelled:
            return lifecycle.RunCancelled(**fields, reason=self._cancelled[run])
        if self._start_no_more is not None:
            kind, message = _NOT_STARTED[self._start_no_more]
            failure = lifecycle.Failure(kind=kind, message=message)
            return lifecycle.RunFailed(**fields, failure=failure)
        return None

    def _append(self, event: Event) -> None:
        self._pending.append(event)
        self._pending_bytes += len(encode(event))

    async def _flush_when_due(self) -> None:
        """Publish at once what is large or the only outcome; other events soon, together."""
        if not self._is_shared or self._pending_bytes > _LARGE:
            await self._flush()
        else:
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        if not self._is_shared or self._flush_timer is not None:
            return
        if self._flushing is None:
            linger = max(LINGER_SECONDS, self.count_leases() * _LINGER_OF_EACH)
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(linger, self._flush_in_background)

    def _flush_in_background(self) -> None:
        async def flush() -> None:
            await self._flush()
            self._flushing = None
            unreported = self._current is not None and not self._is_start_reported
            if self._pending or self._completed or unreported:
                self._schedule_flush()

        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        self._flushing = asyncio.create_task(flush())

    async def _flush(self) -> None:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        events = self._take_events()
        if events and await self.lease.publish(*events) == "lost" and self._current is not None:
            self._current.stop("released")

    def _take_events(self) -> list[Event]:
        """Return everything that is not published: outcomes, and the start of the current run."""
        events, self._pending, self._pending_bytes = self._pending, [], 0
        completed, self._completed = self._completed, []
        for chunk in _chunks(completed):
            data = lifecycle.RunsCompleted(**self.lease.credentials, runs=chunk)
            events.append(self.lease.event(data, traceparent=chunk[-1].traceparent))
        # The end of a short run reports its start.
        is_short = monotonic() - self._began < LINGER_SECONDS
        if self._current is not None and not self._is_start_reported and not is_short:
            self._is_start_reported = True
            events.append(self.lease.started(self._current.ordered, at=self._began_at))
        return events

    def _schedule_renewal(self) -> None:
        """Keep the lease's last message from expiring in the stream."""
        every = self.lease.order.renew_seconds
        if every:
            self._renewal = asyncio.get_running_loop().call_later(every, self._renew)

    def _renew(self) -> None:
        async def renew() -> None:
            if await self.lease.renew() == "stored":
                self._schedule_renewal()
            elif self._current is not None:
                self._current.stop("released")

        self._renewing = asyncio.create_task(renew())


def _chunks(completed: list[lifecycle.CompletedRun]) -> Iterator[list[lifecycle.CompletedRun]]:
    """Split completed runs into events that fit into messages."""
    chunk: list[lifecycle.CompletedRun] = []
    size = 0
    for run in completed:
        length = len(encode_data(run))
        if chunk and size + length > _LARGE:
            yield chunk
            chunk, size = [], 0
        chunk.append(run)
        size += length
    if chunk:
        yield chunk
