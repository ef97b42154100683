"""Run a job's body once, and return its outcome as an event."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import msgspec
from headway_clock import monotonic
from headway_contract import lifecycle
from headway_contract.fields import OUTPUT_LIMIT
from headway_contract.lifecycle import Failure
from headway_contract.orders import OrderedRun
from headway_tracing import is_recording, span, traceparent
from headway_tracing.log import log_context

from headway.define.jobs import Job
from headway.errors import ActivationRefused, ActivationUnavailable, LeaseLost
from headway.worker.activations import Activations
from headway.worker.context import Context, current_reporter
from headway.worker.fork_server import BodyFailed, BodyProcess, ForkServer
from headway.worker.leases import Lease
from headway.worker.outcomes import encode_output, failure_of
from headway.worker.reports import Reports

# How long a stopping worker waits for a body, after the drain.
HAND_BACK_SECONDS = 2.0
# Bytes for envelope and headers beside an output.
_ENVELOPE = 8 * 1024

StopReason = Literal[
    "cancelled", "timed_out", "worker_stopped", "lost_contact", "released", "handed_back"
]
Outcome = lifecycle.RunCompleted | lifecycle.RunFailed | lifecycle.RunCancelled


class Execution:
    """Runs one body, can be stopped, and returns the outcome."""

    def __init__(
        self, job: Job, ordered: OrderedRun, lease: Lease, fork_server: ForkServer | None
    ) -> None:
        self.ordered = ordered
        self._activations = Activations(lease, ordered, lambda: self.stop("released"))
        self._reports = Reports(ordered, lease)
        self.context = Context(ordered, job.name, self._activations, self._reports)
        self._job = job
        self._fork_server = fork_server
        self._process: BodyProcess | None = None
        self._fields = {**lease.credentials, "run": ordered.run}
        # The broker may accept less than the protocol allows.
        self._most_output = min(OUTPUT_LIMIT, lease.broker.client.max_payload - _ENVELOPE)
        self._body: asyncio.Future[Any] | None = None
        # Done when the body ends, or when it is requested to stop.
        self._wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Exists once a body is requested to stop; done if it must do so at once.
        self._hurry: asyncio.Future[None] | None = None
        self._is_hurried = False
        self._stopping: StopReason | None = None
        self._why = ""
        self.traceparent = ordered.traceparent
        # The duration of the body, from its first step; known for async bodies only.
        self.seconds: float | None = None

    def stop(self, reason: StopReason, why: str = "") -> None:
        """Request the body to end early; the first reason counts."""
        # A stopping worker shortens the grace of a body that is already stopping.
        if reason == "worker_stopped":
            self._is_hurried = True
            _set(self._hurry)
        if self._stopping is not None:
            return
        self._stopping, self._why = reason, why
        _set(self._wake)
        self.context.ask_to_stop()
        # A thread can only check `ctx.cancelled`.
        if self._process is not None:
            self._process.ask_to_stop()
        elif self._job.is_async and self._body is not None:
            self._body.cancel()

    async def run(self) -> Outcome | None:
        """Run to the end; return `None` if the lease was taken away."""
        ordered = self.ordered
        traced = {"job": self._job.name, "run": str(ordered.run)} if is_recording() else {}
        with (
            log_context(run=ordered.run, work=ordered.work),
            span("run", parent=ordered.traceparent, attempt=ordered.attempt, **traced) as current,
        ):
            self.traceparent = traceparent() or ordered.traceparent
            try:
                outcome = await self._attempt()
            finally:
                await self._activations.close()
                await self._reports.close()
            if isinstance(outcome, lifecycle.RunFailed):
                current.set_attribute("headway.failure", outcome.failure.kind)
            return outcome

    async def _attempt(self) -> Outcome | None:
        if self._stopping is not None:
            return self._stopped()  # it never starts
        try:
            given = self._job.read_input(self.ordered.input)
            body = self._start(given)
        except msgspec.ValidationError as error:
            failure = Failure(kind="invalid_input", message=str(error), retryable=False)
            return self._failed(failure)
        except Exception as error:  # noqa: BLE001 - a type's own code, or no thread is available
            return self._failed(failure_of(error))
        if not await self._ends_in_time(body):
            body.add_done_callback(_retrieve)
            if self._process is not None:
                self._process.kill()
            return self._stopped()
        if self._stopping is not None:
            # The result may be a consequence of the request to stop.
            _retrieve(body)
            return self._stopped()
        if body.cancelled():
            return self._failed(failure_of(_Cancelled()))
        return await self._outcome_of(body)

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
        if fault is not None:
            failure = fault.failure if isinstance(fault, BodyFailed) else failure_of(fault)
            return self._failed(failure)
        output = encode_output(body.result(), self._most_output)
        if isinstance(output, Failure):
            return self._failed(output)
        return lifecycle.RunCompleted(**self._fields, output=output)

    def _start(self, given: Any) -> "asyncio.Future[Any]":
        arguments = (self.context, given) if self._job.takes_input else (self.context,)
        captured = current_reporter.set(self._reports if self._job.capture_logging else None)
        try:
            if self._fork_server is not None and self._job.process:
                self._process = BodyProcess(
                    self._fork_server, self._job, self.ordered, self._reports, self._activations
                )
                self._body = asyncio.create_task(self._process.run())
            elif self._job.is_async:
                self._body = asyncio.create_task(self._guarded(self._job.function, arguments))
            else:
                self._body = run_in_thread(self._job.function, *arguments)
        finally:
            current_reporter.reset(captured)
        return self._body

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
        body.add_done_callback(lambda _: _set(self._wake))
        clock = loop.call_later(self.ordered.timeout_seconds, self.stop, "timed_out")
        try:
            await self._wake
        finally:
            clock.cancel()
        if not body.done():
            grace = self.ordered.cancel_grace_seconds
            self._hurry = loop.create_future()
            if self._is_hurried:
                _set(self._hurry)
            ends = {body, self._hurry}
            await asyncio.wait(ends, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
            if self._hurry.done():
                await asyncio.wait({body}, timeout=min(grace, HAND_BACK_SECONDS))
        return body.done()

    def _stopped(self) -> Outcome | None:
        match self._stopping:
            case "released" | "handed_back" | None:
                return None
            case "cancelled":
                return lifecycle.RunCancelled(**self._fields, reason=self._why)
            case "timed_out":
                seconds = self.ordered.timeout_seconds
                kind, message = lifecycle.TIMED_OUT, f"the run took longer than {seconds:g} s"
            case "worker_stopped":
                kind, message = lifecycle.WORKER_STOPPED, "the worker stopped before the run ended"
            case "lost_contact":
                kind, message = lifecycle.LOST_CONTACT, "the worker lost contact and stopped"
        return self._failed(Failure(kind=kind, message=message))

    def _failed(self, failure: Failure) -> lifecycle.RunFailed:
        return lifecycle.RunFailed(**self._fields, failure=failure)


class _Cancelled(Exception):
    """Something that the body awaited was cancelled."""


def _set(future: "asyncio.Future[None] | None") -> None:
    if future is not None and not future.done():
        future.set_result(None)


def _retrieve(body: "asyncio.Future[Any]") -> None:
    """Retrieve an unused result, or the event loop logs it."""
    if not body.cancelled():
        body.exception()


def run_in_thread(function: Callable[..., Any], *arguments: Any) -> "asyncio.Future[Any]":
    """Call a function in a thread of its own; cancelling the future does not stop it.

    Not in a pool: the interpreter waits for a pool's threads when it exits, and a body that
    ignores a request to stop would block the exit for ever.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, raised: BaseException | None) -> None:
        if future.done():
            return
        if raised is None:
            future.set_result(result)
        else:
            future.set_exception(raised)

    def call() -> None:
        result: Any = None
        raised: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - the caller receives it, whatever it is
            # No future can hold a StopIteration, and a SystemExit must end only this thread.
            replaced = isinstance(error, StopIteration) or not isinstance(error, Exception)
            raised = RuntimeError(repr(error)) if replaced else error
        with suppress(RuntimeError):  # the event loop may be closed
            loop.call_soon_threadsafe(settle, result, raised)

    threading.Thread(target=call, name=f"job-{function.__name__}", daemon=True).start()
    return future
