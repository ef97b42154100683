"""Activate dormant dependents from inside a job's body.

The worker asks the scheduler first, which knows the dependents and their inputs. Then it publishes
the activation under the lease's fence, like any other event of the run. It publishes nothing that
the scheduler refused, and nothing after the run's outcome: pending activations are dropped then.
"""

import asyncio
from collections.abc import Coroutine, Generator
from concurrent.futures import Future
from typing import Any

import msgspec
from headway_clock import jitter
from headway_contract import subjects
from headway_contract.fields import INPUT_LIMIT
from headway_contract.lifecycle import Activation, RunActivated
from headway_contract.manifests import ActivationAnswer, ActivationQuestion
from headway_contract.orders import OrderedRun
from headway_errors import Invalid, RequestFailed
from headway_jetstream_kit.ask import ask
from headway_tracing import traceparent
from headway_tracing.log import get_logger

from headway.define.jobs import holds_nul
from headway.errors import ActivationRefused, ActivationUnavailable, LeaseLost
from headway.worker.context import ActivationRequest
from headway.worker.leases import Lease

log = get_logger(__name__)

KEY_LIMIT = 255
MANY_LIMIT = 10_000
TRIES = 5
_TIMEOUT = 5.0
# Bytes for the envelope and the fields beside the activations.
_ENVELOPE = 16 * 1024


class PendingActivation(Coroutine[Any, Any, None]):
    """An activation that has begun; awaiting it returns or raises its result.

    It is a coroutine so that task groups accept it, but it runs without being awaited. A plain
    function has already waited and gets one that is done.
    """

    def __init__(self, future: "asyncio.Future[None] | None" = None) -> None:
        self.future = future
        self.awaited = False
        self._steps = self.__await__()

    def __await__(self) -> Generator[Any, Any, None]:
        self.awaited = True
        if self.future is not None:
            yield from self.future.__await__()

    def send(self, value: Any) -> Any:
        """Continue, as a coroutine does."""
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise where it waits, as a coroutine does."""
        return self._steps.throw(*error)

    def close(self) -> None:
        """Stop waiting; the activation itself continues."""
        self._steps.close()


class Activations:
    """The activations of one run."""

    def __init__(self, lease: Lease, ordered: OrderedRun) -> None:
        self._lease = lease
        self._ordered = ordered
        self._loop = asyncio.get_running_loop()
        self._taken: dict[str, set[str]] = {}
        self._pending: list[PendingActivation] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._over = False

    def activate(self, requests: list[ActivationRequest]) -> Coroutine[Any, Any, None]:
        """Begin at once; a thread without an event loop waits until it is done."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            self._from_thread(requests).result()
            return PendingActivation()
        if running is not self._loop:
            return PendingActivation(asyncio.wrap_future(self._from_thread(requests)))
        activated = PendingActivation(self._begin(requests))
        self._pending.append(activated)
        return activated

    def _from_thread(self, requests: list[ActivationRequest]) -> "Future[None]":
        async def begin() -> None:
            await self._begin(requests)

        return asyncio.run_coroutine_threadsafe(begin(), self._loop)

    async def finish(self) -> None:
        """Wait for activations that the body has not awaited; raise if one failed."""
        for activated in self._pending:
            if not activated.awaited:
                await activated

    async def close(self) -> None:
        """Cancel pending activations; nothing is published after this."""
        self._over = True
        if self._under_way:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
        for activated in self._pending:
            future = activated.future
            if future is not None and future.done() and not future.cancelled():
                future.exception()  # or the event loop logs it as never retrieved

    def _begin(self, requests: list[ActivationRequest]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._activate(requests))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _activate(self, requests: list[ActivationRequest]) -> None:
        if self._over:
            raise LeaseLost(f"run {self._ordered.run} has ended and can no longer activate")
        if not requests:
            return
        if self._ordered.manifest is None:
            raise ActivationRefused("only the run of a manifest can activate dependents")
        inputs = _read_inputs(requests)
        activations = [
            Activation(manifest=request.manifest, key=self._key(request), input=given)
            for request, given in zip(requests, inputs, strict=True)
        ]
        try:
            await self._ask(self._ordered.manifest, activations)
            await self._publish(activations)
        except (ActivationRefused, ActivationUnavailable):
            # Nothing was published, so the next activation gets the same number.
            for activation in activations:
                self._taken[activation.manifest].discard(activation.key)
            raise

    def _key(self, request: ActivationRequest) -> str:
        """Return the requested key, or the first number that is free for the dependent."""
        taken = self._taken.setdefault(request.manifest, set())
        key = request.key
        if key is None:
            numbers = ("" if number == 0 else str(number) for number in range(len(taken) + 1))
            key = next(number for number in numbers if number not in taken)
        taken.add(key)
        return key

    async def _ask(self, manifest: str, activations: list[Activation]) -> None:
        """Ask the scheduler whether all of them may be activated."""
        size = len(msgspec.json.encode(activations))
        broker, subject = self._lease.broker, subjects.ACTIVATION_QUESTION
        most = broker.client.max_payload - _ENVELOPE
        if size > most:
            raise ActivationRefused(
                f"the activations have {size} bytes together, more than {most}: "
                "activate fewer at once"
            )
        question = ActivationQuestion(manifest=manifest, activations=activations)
        trouble = ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(0.1 * 2**number * (1 + jitter(0.2)))
            try:
                answer = await ask(broker, subject, question, ActivationAnswer, timeout=_TIMEOUT)
                break
            except Invalid as error:
                raise ActivationRefused(str(error)) from error
            except RequestFailed as error:
                trouble = str(error)
            log.debug("activation question failed", manifest=manifest, error=trouble)
        else:
            raise ActivationUnavailable(
                f"no scheduler answered {TRIES} times whether {manifest} may activate: {trouble}"
            )
        if answer.problems:
            raise ActivationRefused("\n".join(answer.problems))

    async def _publish(self, activations: list[Activation]) -> None:
        run = self._ordered.run
        activated = RunActivated(**self._lease.credentials, run=run, activations=activations)
        context = traceparent() or self._ordered.traceparent
        event = self._lease.event(activated, traceparent=context)
        if await self._lease.publish(event) == "lost":
            raise LeaseLost(f"run {run} was taken away from this worker")


def _read_inputs(requests: list[ActivationRequest]) -> list[Any]:
    """Return the inputs as JSON values, or raise with every problem."""
    problems: list[str] = []
    inputs = []
    if len(requests) > MANY_LIMIT:
        problems.append(f"{len(requests)} activations at once are more than {MANY_LIMIT}")
    for request in requests:
        try:
            given = msgspec.to_builtins(request.input)
            size = len(msgspec.json.encode(given))
            stored = msgspec.json.encode([request.manifest, request.key, given])
        except (TypeError, ValueError, RecursionError) as error:
            problems.append(f"{request.manifest}: the input cannot be written as JSON: {error}")
            continue
        inputs.append(given)
        if size > INPUT_LIMIT:
            problem = f"the input has {size} bytes, more than {INPUT_LIMIT}"
        elif request.key is not None and len(request.key) > KEY_LIMIT:
            problem = f"the key has {len(request.key)} characters, more than {KEY_LIMIT}"
        elif holds_nul(stored):
            problem = "a NUL character cannot be stored"
        else:
            continue
        problems.append(f"{request.manifest}: {problem}")
    if problems:
        raise ActivationRefused("\n".join(problems))
    return inputs
