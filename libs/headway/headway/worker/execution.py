"""One run of a job's body, and what came of it."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from headway_contract.lifecycle import (
    LOST_CONTACT,
    TIMED_OUT,
    WORKER_STOPPED,
    Failure,
    RunCancelled,
    RunCompleted,
    RunFailed,
)
from headway_contract.limits import OUTPUT_LIMIT
from headway_contract.orders import OrderedRun
from headway_jetstream_kit import Broker
from headway_tracing import span, traceparent

from headway.define.jobs import Job
from headway.errors import ActivationRefused, ActivationUnavailable, LeaseLost
from headway.worker.activations import Activations
from headway.worker.context import Context
from headway.worker.failures import failure_of
from headway.worker.fork_server import BodyFailed, Child, Nursery
from headway.worker.leases import Lease
from headway.worker.outputs import encode_output
from headway.worker.reports import Reports
from headway.worker.run_log import current_reporter
from headway.worker.threads import run_in_thread

# What a stopping worker gives a body to end: it has had the time of the drain before.
HAND_BACK_SECONDS = 2.0
# What envelope and headers may take up beside an output.
_ENVELOPE = 8 * 1024

StopReason = Literal["cancelled", "timed_out", "worker_stopped", "lost_contact", "released"]
Outcome = RunCompleted | RunFailed | RunCancelled


class Execution:
    """Runs one body, can be asked to stop, and tells the outcome as an event's data."""

    def __init__(
        self,
        job: Job,
        ordered: OrderedRun,
        lease: Lease,
        broker: Broker,
        *,
        nursery: Nursery | None = None,
    ) -> None:
        self.ordered = ordered
        self._activations = Activations(
            broker, lease, ordered, on_lost=lambda: self.stop("released")
        )
        self._reports = Reports(broker, ordered, lease=lease)
        self.context = Context(
            ordered, job.name, activator=self._activations, reporter=self._reports
        )
        self._job = job
        self._nursery = nursery
        self._child: Child | None = None
        self._credentials = lease.credentials
        # A broker may take less than we do; what it does not take would never be told.
        self._most_output = min(OUTPUT_LIMIT, broker.client.max_payload - _ENVELOPE)
        self._body: asyncio.Future[Any] | None = None
        self._asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._stopping: StopReason | None = None
        self._why = ""
        self.traceparent = ordered.traceparent

    def stop(self, reason: StopReason, why: str = "") -> None:
        """Ask the body to end early; the first reason given is the one that counts.

        A worker that stops also cuts short the grace of a body that was asked before.
        """
        if reason == "worker_stopped":
            self._hurried.set()
        if self._stopping is not None:
            return
        self._stopping, self._why = reason, why
        self._asked.set()
        self.context.ask_to_stop()
        if self._body is not None:
            self._ask_body()

    async def run(self) -> Outcome | None:
        """Run to the end; none if the lease was taken away and there is nothing to tell."""
        with span(
            "run",
            parent=self.ordered.traceparent,
            job=self._job.name,
            run=str(self.ordered.run),
            attempt=self.ordered.attempt,
        ) as current:
            self.traceparent = traceparent() or self.ordered.traceparent
            try:
                outcome = await self._attempt()
            finally:
                await self._activations.close()
                await self._reports.close()
            if isinstance(outcome, RunFailed):
                current.set_attribute("headway.failure", outcome.failure.kind)
            return outcome

    async def _attempt(self) -> Outcome | None:
        if self._stopping is not None:
            return self._stopped()  # asked before it began, so it never does
        try:
            given = self._job.read_input(self.ordered.input)
            body = self._start(given)
        except msgspec.ValidationError as error:
            return self._failed(Failure(kind="invalid_input", message=str(error), retryable=False))
        except Exception as error:  # noqa: BLE001 - a type's own code, or no thread can be had
            return self._raised(error)
        if not await self._ends_in_time(body):
            body.add_done_callback(_ignore)
            if self._child is not None:
                self._child.kill()
            return self._stopped()
        if self._stopping is not None:
            # Whatever it came to then, it may have come to because it was asked to stop.
            _ignore(body)
            return self._stopped()
        if body.cancelled():
            return self._raised(_Cancelled())
        fault = body.exception() or await self._trouble_of_activations()
        if self._stopping == "released":
            return None
        return self._returned(body.result()) if fault is None else self._raised(fault)

    async def _trouble_of_activations(self) -> BaseException | None:
        """What became of activations that the body has begun and not awaited."""
        try:
            await self._activations.finish()
        except (ActivationRefused, ActivationUnavailable, LeaseLost) as error:
            return error
        return None

    def _start(self, given: Any) -> "asyncio.Future[Any]":
        arguments = (self.context, given) if self._job.takes_input else (self.context,)
        captured = current_reporter.set(self._reports if self._job.capture_logging else None)
        try:
            if self._nursery is not None and self._job.process:
                self._child = Child(
                    self._nursery, self._job, self.ordered, self._reports, self._activations
                )
                self._body = asyncio.create_task(self._child.run())
            elif self._job.is_async:
                self._body = asyncio.create_task(_guarded(self._job.function, arguments))
            else:
                self._body = run_in_thread(self._job.function, *arguments)
        finally:
            current_reporter.reset(captured)
        return self._body

    def _ask_body(self) -> None:
        """Ask a body that has begun to end; a thread can only look whether it was asked."""
        if self._child is not None:
            self._child.ask_to_stop()
        elif self._job.is_async and self._body is not None:
            self._body.cancel()

    async def _ends_in_time(self, body: "asyncio.Future[Any]") -> bool:
        """Wait for the body; once it was asked to stop, for no longer than its grace."""
        loop = asyncio.get_running_loop()
        clock = loop.call_later(self.ordered.timeout_seconds, self.stop, "timed_out")
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({body, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not body.done():
                await self._wait_out_grace(body)
            return body.done()
        finally:
            clock.cancel()
            asked.cancel()

    async def _wait_out_grace(self, body: "asyncio.Future[Any]") -> None:
        grace = self.ordered.cancel_grace_seconds
        hurried = asyncio.create_task(self._hurried.wait())
        try:
            await asyncio.wait({body, hurried}, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            if hurried.done():
                await asyncio.wait({body}, timeout=min(grace, HAND_BACK_SECONDS))
        finally:
            hurried.cancel()

    def _returned(self, output: Any) -> Outcome:
        encoded = encode_output(output, self._most_output)
        if isinstance(encoded, Failure):
            return self._failed(encoded)
        return RunCompleted(**self._credentials, run=self.ordered.run, output=encoded)

    def _raised(self, error: BaseException) -> Outcome:
        told = error.failure if isinstance(error, BodyFailed) else failure_of(error)
        return self._failed(told)

    def _stopped(self) -> Outcome | None:
        match self._stopping:
            case "released" | None:
                return None
            case "cancelled":
                return RunCancelled(**self._credentials, run=self.ordered.run, reason=self._why)
            case "timed_out":
                message = f"the run took longer than {self.ordered.timeout_seconds:g} s"
                return self._failed(Failure(kind=TIMED_OUT, message=message))
            case "worker_stopped":
                return self._failed(
                    Failure(kind=WORKER_STOPPED, message="the worker stopped before the run ended")
                )
            case "lost_contact":
                return self._failed(
                    Failure(kind=LOST_CONTACT, message="the worker lost contact and stopped")
                )

    def _failed(self, failure: Failure) -> RunFailed:
        return RunFailed(**self._credentials, run=self.ordered.run, failure=failure)


class _Cancelled(Exception):
    """The body gave up because something that it waited for was cancelled."""


async def _guarded(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A body that asks the interpreter to exit fails; it must not take its neighbours along."""
    try:
        return await function(*arguments)
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _ignore(body: "asyncio.Future[Any]") -> None:
    """Take note of an outcome that nobody wants any more, or the loop complains."""
    if not body.cancelled():
        body.exception()
