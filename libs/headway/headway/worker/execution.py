"""One run of a job's body, and what came of it."""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from headway_contract.lifecycle import (
    TIMED_OUT,
    WORKER_STOPPED,
    Failure,
    RunCancelled,
    RunCompleted,
    RunFailed,
)
from headway_contract.orders import OrderedRun
from headway_jetstream_kit import Broker
from headway_tracing import span, traceparent

from headway.context import Context
from headway.errors import ActivationRefused, ActivationUnavailable, Fatal, LeaseLost
from headway.jobs import Job, holds_nul
from headway.worker.activations import Activations
from headway.worker.leases import Lease
from headway.worker.threads import run_in_thread

OUTPUT_LIMIT = 256 * 1024
STACK_LIMIT = 16 * 1024
MESSAGE_LIMIT = 4 * 1024

StopReason = Literal["cancelled", "timed_out", "worker_stopped", "lost_contact", "released"]
Outcome = RunCompleted | RunFailed | RunCancelled


class Execution:
    """Runs one body, can be asked to stop, and tells the outcome as an event's data."""

    def __init__(self, job: Job, ordered: OrderedRun, lease: Lease, broker: Broker) -> None:
        self.ordered = ordered
        self._activations = Activations(
            broker, lease, ordered, on_lost=lambda: self.stop("released")
        )
        self.context = Context(ordered, job.name, activator=self._activations)
        self._job = job
        self._credentials = lease.credentials
        self._body: asyncio.Future[Any] | None = None
        self._asked = asyncio.Event()
        self._stopping: StopReason | None = None
        self._why = ""
        self.traceparent = ordered.traceparent

    def stop(self, reason: StopReason, why: str = "") -> None:
        """Ask the body to end early; the first reason given is the one that counts."""
        if self._stopping is not None:
            return
        self._stopping, self._why = reason, why
        self._asked.set()
        self.context.ask_to_stop()
        if self._body is not None and self._job.is_async:
            self._body.cancel()

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
            if isinstance(outcome, RunFailed):
                current.set_attribute("headway.failure", outcome.failure.kind)
            return outcome

    async def _attempt(self) -> Outcome | None:
        try:
            given = self._job.read_input(self.ordered.input)
        except msgspec.ValidationError as error:
            return self._failed(Failure(kind="invalid_input", message=str(error), retryable=False))
        body = self._start(given)
        if not await self._ends_in_time(body):
            body.add_done_callback(_ignore)
            return self._stopped()
        if self._stopping in ("cancelled", "timed_out", "released"):
            _ignore(body)
            return self._stopped()
        if body.cancelled():
            return self._stopped() if self._stopping else self._raised(_Cancelled())
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
        if self._job.is_async:
            self._body = asyncio.create_task(_guarded(self._job.function, arguments))
        else:
            self._body = run_in_thread(self._job.function, *arguments)
        if self._stopping is not None and self._job.is_async:
            self._body.cancel()
        return self._body

    async def _ends_in_time(self, body: "asyncio.Future[Any]") -> bool:
        """Wait for the body; once it was asked to stop, for no longer than its grace."""
        loop = asyncio.get_running_loop()
        clock = loop.call_later(self.ordered.timeout_seconds, self.stop, "timed_out")
        asked = asyncio.create_task(self._asked.wait())
        try:
            await asyncio.wait({body, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not body.done():
                await asyncio.wait({body}, timeout=self.ordered.cancel_grace_seconds)
            return body.done()
        finally:
            clock.cancel()
            asked.cancel()

    def _returned(self, output: Any) -> Outcome:
        try:
            encoded = msgspec.json.encode(output)
            if holds_nul(encoded):
                raise ValueError("the output holds a NUL character, which cannot be stored")
        except (TypeError, ValueError, RecursionError) as error:
            return self._failed(
                Failure(kind="output_not_json", message=str(error), retryable=False)
            )
        if len(encoded) > OUTPUT_LIMIT:
            message = f"the output has {len(encoded)} bytes, more than {OUTPUT_LIMIT}"
            return self._failed(Failure(kind="output_too_large", message=message, retryable=False))
        return RunCompleted(**self._credentials, run=self.ordered.run, output=msgspec.Raw(encoded))

    def _raised(self, error: BaseException) -> Outcome:
        return self._failed(
            Failure(
                kind=type(error).__name__.lstrip("_"),
                message=_storable(str(error))[:MESSAGE_LIMIT],
                stack=_storable("".join(traceback.format_exception(error)))[-STACK_LIMIT:],
                retryable=not isinstance(error, Fatal),
            )
        )

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
                    Failure(kind="lost_contact", message="the worker lost contact and stopped")
                )

    def _failed(self, failure: Failure) -> RunFailed:
        return RunFailed(**self._credentials, run=self.ordered.run, failure=failure)


def _storable(text: str) -> str:
    """Text without what cannot be stored: NUL characters and halves of surrogate pairs."""
    return text.encode(errors="replace").decode().replace("\x00", "\\0")


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
