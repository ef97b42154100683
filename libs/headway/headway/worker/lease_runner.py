"""Run the runs of one lease, one after the other, until all of them have ended.

A body runs as a coroutine in a task of its own, in a thread, or in a forked process. Timeouts, task
groups and cancels belong to the current task, so two bodies must not share one. A coroutine that
ends at its first step costs little: only a body that still runs after the next turn of the event
loop gets a timer.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_clock import monotonic
from headway_contract import lifecycle
from headway_contract.fields import OUTPUT_LIMIT
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun
from headway_decisions.retries.retries import UNCOUNTED
from headway_jetstream_kit.tasks import end
from headway_tracing import span, traceparent
from headway_tracing.log import EXCEPTION, get_logger

from headway.define.jobs import Job
from headway.errors import ActivationRefused, ActivationUnavailable, LeaseLost
from headway.worker.activations import Activations
from headway.worker.body_thread import run_in_thread
from headway.worker.context import Context, current_reporter
from headway.worker.fork_server import BodyFailed, BodyProcess, ForkServer
from headway.worker.leases import Lease, LeaseEvents
from headway.worker.outcomes import Cancelled, Outcome, encode_output, failure_of
from headway.worker.reports import Reports

log = get_logger(__name__)

# How long a stopping worker waits for a body, after the drain.
HAND_BACK_SECONDS = 2.0
# Bytes for envelope and headers beside an output.
_ENVELOPE = 8 * 1024
# A dispatcher that lags behind asks for renewals that it does not need.
_RENEWAL_PAUSE_SECONDS = 30.0

# Why a body that runs is stopped, or why runs that have not begun are handed back.
StopReason = Literal["cancelled", "timed_out", "worker_stopped", "lost_contact", "released"]
HandBackReason = Literal["worker_stopped", "lost_contact", "handed_back"]

_OUTCOME_NAMES: dict[type, str] = {
    msgspec.Raw: "completed",
    Failure: "failed",
    Cancelled: "cancelled",
    type(None): "lost",
}

# Called with the job, the outcome in a word and the seconds of every body that ended.
OnEnded = Callable[[str, str, float], None]


class LeaseRunner:
    """One lease that this worker holds, from its claim to the outcome of its last run."""

    def __init__(
        self,
        lease: Lease,
        job: Job,
        fork_server: ForkServer | None,
        on_ended: OnEnded | None,
        count_leases: Callable[[], int],
    ) -> None:
        self.lease = lease
        lease.on_lost = self._stop_lost
        self._job = job
        self._fork_server = fork_server
        self._on_ended = on_ended
        self._events = LeaseEvents(lease, count_leases)
        self._current: Execution | None = None
        self._cancelled: dict[UUID, str] = {}
        self._start_no_more: HandBackReason | None = None
        # The index of the run that begins next.
        self._next = 0
        # Most leases end before they need these: a timer costs less than a task.
        self._renewal: asyncio.TimerHandle | None = None
        self._hand_back_timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def running(self) -> list[UUID]:
        """The runs whose body has begun and not ended."""
        return [] if self._current is None else [self._current.ordered.run]

    async def run(self) -> None:
        """Run all runs of the lease and publish their outcomes."""
        self._schedule_renewal()
        self._schedule_hand_back()
        runs = self.lease.order.runs
        try:
            while self._next < len(runs) and not self.lease.lost:
                ordered = runs[self._next]
                self._next += 1
                if ordered.run in self.lease.ended_runs:
                    continue
                unstarted = self._outcome_without_start(ordered.run)
                if unstarted is None:
                    await self._run_body(ordered)
                else:
                    self._events.add(ordered, unstarted, ordered.traceparent)
            await self._events.flush()
        finally:
            for timer in (self._renewal, self._hand_back_timer):
                if timer is not None:
                    timer.cancel()
            await self._events.close()
            if self._renewing is not None:
                await end([self._renewing])

    async def _run_body(self, ordered: OrderedRun) -> None:
        execution = Execution(self._job, ordered, self.lease, self._fork_server)
        self._current = execution
        self._events.begin(ordered)
        try:
            outcome = await execution.run()
        finally:
            self._current = None
        seconds = execution.seconds
        if seconds is None:
            seconds = monotonic() - self._events.began
        if self._on_ended is not None:
            self._on_ended(self._job.name, _OUTCOME_NAMES[type(outcome)], seconds)
        if isinstance(outcome, Failure) and outcome.kind not in UNCOUNTED:
            _log_failure(self._job.name, ordered, outcome)
        if outcome is not None:
            await self._events.end(ordered, outcome, seconds, execution.traceparent)

    def cancel(self, run: UUID, reason: str) -> None:
        """End one run early, or never start it; the others continue."""
        self._cancelled[run] = reason
        if self._current is not None and self._current.ordered.run == run:
            self._current.stop("cancelled", reason)

    def renew_now(self) -> None:
        """Renew the lease now, because the dispatcher knows no claim of it."""
        quiet = monotonic() - self.lease.published_at >= _RENEWAL_PAUSE_SECONDS
        if quiet and (self._renewing is None or self._renewing.done()):
            if self._renewal is not None:
                self._renewal.cancel()
            self._renew()

    def start_no_more(self, reason: HandBackReason) -> None:
        """Hand back every run that has not begun."""
        self._start_no_more = self._start_no_more or reason

    def stop(self, reason: Literal["worker_stopped", "lost_contact"]) -> None:
        """Hand back all runs, the running one included."""
        self.start_no_more(reason)
        if self._current is not None:
            self._current.stop(reason)

    def _stop_lost(self) -> None:
        if self._current is not None:
            self._current.stop("released")

    def _hand_back(self) -> None:
        """Hand back the runs behind the current one now, because it takes longer than expected."""
        self.start_no_more("handed_back")
        runs = self.lease.order.runs
        for ordered in runs[self._next :]:
            unstarted = self._outcome_without_start(ordered.run)
            if unstarted is not None and ordered.run not in self.lease.ended_runs:
                self._events.add(ordered, unstarted, ordered.traceparent)
        self._next = len(runs)

    def _schedule_hand_back(self) -> None:
        seconds = self.lease.order.hand_back_seconds
        if seconds is not None and len(self.lease.order.runs) > 1:
            loop = asyncio.get_running_loop()
            self._hand_back_timer = loop.call_later(seconds, self._hand_back)

    def _outcome_without_start(self, run: UUID) -> Failure | Cancelled | None:
        """Return the outcome of a run that must not start, or `None` if it may."""
        if run in self._cancelled:
            return Cancelled(self._cancelled[run])
        match self._start_no_more:
            case None:
                return None
            case "handed_back":
                message = "runs before it in its lease took too long"
                return Failure(kind=lifecycle.HANDED_BACK, message=message)
            case reason:
                return _stop_failure(reason, "began")

    def _schedule_renewal(self) -> None:
        """Keep the lease's last message from expiring in the stream."""
        every = self.lease.order.renew_seconds
        if every:
            self._renewal = asyncio.get_running_loop().call_later(every, self._renew)

    def _renew(self) -> None:
        async def renew() -> None:
            if await self.lease.renew() == "stored":
                self._schedule_renewal()

        self._renewing = asyncio.create_task(renew())


def _log_failure(job: str, ordered: OrderedRun, failure: Failure) -> None:
    """Log a failed body; the dispatcher logs what follows."""
    stack = {EXCEPTION: failure.stack} if failure.stack else {}
    log.error(
        "body failed",
        job=job,
        manifest=ordered.manifest,
        failure=failure.summary,
        attempt=f"{ordered.attempt} of {ordered.attempts}",
        run=ordered.run,
        work=ordered.work,
        **stack,
    )


class Execution:
    """Runs one body, can be stopped, and returns the outcome."""

    def __init__(
        self, job: Job, ordered: OrderedRun, lease: Lease, fork_server: ForkServer | None
    ) -> None:
        self.ordered = ordered
        self.traceparent = ordered.traceparent
        # The duration of the body, from its first step; known for async bodies only.
        self.seconds: float | None = None
        self._job = job
        self._lease = lease
        self._fork_server = fork_server
        self._activations = Activations(lease, ordered)
        self._reports = Reports(ordered, lease)
        self._context = Context(ordered, job.name, self._activations, self._reports)
        self._process: BodyProcess | None = None
        self._body: asyncio.Future[Any] | None = None
        self._stopping: StopReason | None = None
        self._why = ""
        # When the timeout ends, or the grace of a body that is requested to stop.
        self._deadline = monotonic() + ordered.timeout_seconds
        # Exists while a body is waited for; done if the deadline has changed.
        self._wake: asyncio.Future[None] | None = None

    def stop(self, reason: StopReason, why: str = "") -> None:
        """Request the body to end early; the first reason counts."""
        if self._stopping is None:
            self._stopping, self._why = reason, why
            self._deadline = monotonic() + self.ordered.cancel_grace_seconds
            self._context.ask_to_stop()
            # A thread can only check `ctx.cancelled`.
            if self._process is not None:
                self._process.ask_to_stop()
            elif self._job.is_async and self._body is not None:
                self._body.cancel()
        if reason == "worker_stopped":
            # This also shortens the grace of a body that is already stopping.
            self._deadline = min(self._deadline, monotonic() + HAND_BACK_SECONDS)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def run(self) -> Outcome | None:
        """Run to the end; return `None` if the lease was taken away."""
        run = self.ordered
        with span(
            "run", parent=run.traceparent, job=self._job.name, run=run.run, attempt=run.attempt
        ) as current:
            self.traceparent = traceparent() or run.traceparent
            try:
                outcome = await self._attempt()
            finally:
                await self._activations.close()
                await self._reports.close()
            if isinstance(outcome, Failure):
                current.set_attribute("headway.failure", outcome.kind)
            return outcome

    async def _attempt(self) -> Outcome | None:
        try:
            given = self._job.read_input(self.ordered.input)
            body = self._body = self._start(given)
        except msgspec.ValidationError as error:
            return Failure(kind="invalid_input", message=str(error), retryable=False)
        except Exception as error:  # noqa: BLE001 - a type's own code, or no thread is available
            return failure_of(error)
        # The first step of a coroutine, after which most short bodies have ended.
        await asyncio.sleep(0)
        if not body.done() and not await self._ends_in_time(body):
            body.add_done_callback(_retrieve)
            if self._process is not None:
                self._process.kill()
            return self._stopped()
        if self._stopping is not None:
            # The result may be a consequence of the request to stop.
            _retrieve(body)
            return self._stopped()
        if body.cancelled():
            return failure_of(_Cancelled())
        return await self._outcome_of(body)

    def _start(self, given: Any) -> "asyncio.Future[Any]":
        arguments = (self._context, given) if self._job.takes_input else (self._context,)
        if self._fork_server is not None and self._job.process:
            self._process = BodyProcess(
                self._fork_server, self._job, self.ordered, self._reports, self._activations
            )
            return asyncio.create_task(self._process.run())
        # A body gets a copy of the current context.
        captured = current_reporter.set(self._reports if self._job.capture_logging else None)
        try:
            if self._job.is_async:
                return asyncio.create_task(self._guarded(self._job.function, arguments))
            return run_in_thread(self._job.function, *arguments)
        finally:
            current_reporter.reset(captured)

    async def _guarded(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Turn an exit of the interpreter into a failure, to protect other runs."""
        # Time in which other bodies kept the event loop busy does not count.
        began = monotonic()
        try:
            return await function(*arguments)
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error
        finally:
            self.seconds = monotonic() - began

    async def _ends_in_time(self, body: "asyncio.Future[Any]") -> bool:
        """Wait for the body; after a request to stop, for no longer than its grace."""
        loop = asyncio.get_running_loop()
        while not body.done():
            left = self._deadline - monotonic()
            if left <= 0 and self._stopping is not None:
                return False
            if left <= 0:
                self.stop("timed_out")
                continue
            self._wake = loop.create_future()
            ends = {body, self._wake}
            await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        return True

    async def _outcome_of(self, body: "asyncio.Future[Any]") -> Outcome | None:
        """Wait for activations that the body has not awaited, and return its outcome."""
        fault = body.exception()
        if fault is None:
            try:
                await self._activations.finish()
            except (ActivationRefused, ActivationUnavailable, LeaseLost) as error:
                fault = error
        if self._stopping == "released":
            return None
        if isinstance(fault, BodyFailed):
            return fault.failure
        if fault is not None:
            return failure_of(fault)
        # The broker may accept less than the protocol allows.
        most = min(OUTPUT_LIMIT, self._lease.broker.client.max_payload - _ENVELOPE)
        return encode_output(body.result(), most)

    def _stopped(self) -> Outcome | None:
        match self._stopping:
            case "released" | None:
                return None
            case "cancelled":
                return Cancelled(self._why)
            case "timed_out":
                message = f"the run took longer than {self.ordered.timeout_seconds:g} s"
                return Failure(kind=lifecycle.TIMED_OUT, message=message)
            case reason:
                return _stop_failure(reason, "ended")


def _stop_failure(
    reason: Literal["worker_stopped", "lost_contact"], moment: Literal["began", "ended"]
) -> Failure:
    how = "the worker stopped" if reason == "worker_stopped" else "the worker lost contact"
    return Failure(kind=reason, message=f"{how} before the run {moment}")


class _Cancelled(Exception):
    """Something that the body awaited was cancelled."""


def _retrieve(body: "asyncio.Future[Any]") -> None:
    """Retrieve an unused result, or the event loop logs it."""
    if not body.cancelled():
        body.exception()
