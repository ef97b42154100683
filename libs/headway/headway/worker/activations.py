"""Waking dormant dependents from inside a job's body.

The scheduler is asked first, because it knows which dependents there are and what they
take; then the activation is published under the lease's fence like any other word of the
run. Nothing is published that the scheduler has not agreed to, and nothing after the run's
outcome: whatever is still under way when the run is over is given up.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Future
from typing import Any

import msgspec
from headway_clock import jitter
from headway_contract import subjects
from headway_contract.lifecycle import Activation, RunActivated
from headway_contract.limits import INPUT_LIMIT
from headway_contract.orders import OrderedRun
from headway_contract.scheduling import ActivationAnswer, ActivationQuestion
from headway_errors import Invalid, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_tracing import traceparent

from headway.define.jobs import holds_nul
from headway.errors import ActivationRefused, ActivationUnavailable, LeaseLost
from headway.worker.context import Wanted
from headway.worker.leases import Lease

logger = logging.getLogger(__name__)

KEY_LIMIT = 255
MANY_LIMIT = 10_000
TRIES = 5
_TIMEOUT = 5.0
# What the envelope and the other fields may take up beside the activations themselves.
_ENVELOPE = 16 * 1024


class Activated(Coroutine[Any, Any, None]):
    """An activation that has begun; awaiting it tells how it ended.

    A coroutine, so that task groups take it, but one that needs nobody to drive it. A plain
    function has waited already and gets one with nothing left to wait for.
    """

    def __init__(self, future: "asyncio.Future[None] | None" = None) -> None:
        self.future = future
        self.awaited = False
        self._steps: Generator[Any, Any, None] | None = None

    def __await__(self) -> Generator[Any, Any, None]:
        self.awaited = True
        if self.future is not None:
            yield from self.future.__await__()

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine does."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise where it waits, as a coroutine does."""
        if self._steps is None:
            self._steps = self.__await__()
        return self._steps.throw(*error)

    def close(self) -> None:
        """Wait no more; the activation itself goes on."""
        if self._steps is not None:
            self._steps.close()


class Activations:
    """The activations of one run."""

    def __init__(
        self,
        broker: Broker,
        lease: Lease,
        ordered: OrderedRun,
        *,
        on_lost: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._lease = lease
        self._ordered = ordered
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._taken: dict[str, set[str]] = {}
        self._told: list[Activated] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._over = False

    def activate(self, wanted: list[Wanted]) -> Coroutine[Any, Any, None]:
        """Begin at once; a thread without a loop of its own waits here until it is done."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            self._from_thread(wanted).result()
            return Activated()
        if running is not self._loop:
            return Activated(asyncio.wrap_future(self._from_thread(wanted)))
        activated = Activated(self._begin(wanted))
        self._told.append(activated)
        return activated

    def _from_thread(self, wanted: list[Wanted]) -> "Future[None]":
        async def begin() -> None:
            await self._begin(wanted)

        return asyncio.run_coroutine_threadsafe(begin(), self._loop)

    async def finish(self) -> None:
        """Wait for what the body has begun and not awaited; raises if any of it failed."""
        for activated in self._told:
            if not activated.awaited:
                await activated

    async def close(self) -> None:
        """Give up what is still under way: after this nothing is published any more."""
        self._over = True
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        for activated in self._told:
            future = activated.future
            if future is not None and future.done() and not future.cancelled():
                future.exception()  # or the loop complains that nobody has looked

    def _begin(self, wanted: list[Wanted]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._activate(wanted))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return task

    async def _activate(self, wanted: list[Wanted]) -> None:
        if self._over:
            raise LeaseLost(f"run {self._ordered.run} is over and can activate nothing any more")
        if not wanted:
            return
        if self._ordered.manifest is None:
            raise ActivationRefused("only a manifest's run can activate")
        inputs = self._checked(wanted)
        activations = [
            Activation(manifest=one.manifest, key=self._key(one), input=given)
            for one, given in zip(wanted, inputs, strict=True)
        ]
        try:
            self._check_size(activations)
            await self._ask(self._ordered.manifest, activations)
            await self._say(activations)
        except (ActivationRefused, ActivationUnavailable):
            # Nothing was published, so the next one that is gets the same number.
            for one in activations:
                self._taken[one.manifest].discard(one.key)
            raise

    def _checked(self, wanted: list[Wanted]) -> list[Any]:
        """The inputs as JSON values, or all that is wrong with them."""
        problems: list[str] = []
        inputs = []
        if len(wanted) > MANY_LIMIT:
            problems.append(f"{len(wanted)} activations at once are more than {MANY_LIMIT}")
        for one in wanted:
            try:
                given, problem = _as_json(one)
                inputs.append(given)
            except (TypeError, ValueError, RecursionError) as error:
                problem = f"the input cannot be written as JSON: {error}"
            if problem is not None:
                problems.append(f"{one.manifest}: {problem}")
        if problems:
            raise ActivationRefused("\n".join(problems))
        return inputs

    def _key(self, one: Wanted) -> str:
        """The key asked for, or the first number that this run has not used for the target."""
        taken = self._taken.setdefault(one.manifest, set())
        key = one.key
        if key is None:
            numbers = ("" if number == 0 else str(number) for number in range(len(taken) + 1))
            key = next(number for number in numbers if number not in taken)
        taken.add(key)
        return key

    def _check_size(self, activations: list[Activation]) -> None:
        size = len(msgspec.json.encode(activations))
        most = self._broker.client.max_payload - _ENVELOPE
        if size > most:
            raise ActivationRefused(
                f"the activations have {size} bytes together, more than {most}: "
                "activate fewer at once"
            )

    async def _ask(self, manifest: str, activations: list[Activation]) -> None:
        """Ask the scheduler whether all of them may be woken."""
        question = ActivationQuestion(manifest=manifest, activations=activations)
        trouble = ""
        for number in range(TRIES):
            if number:
                await asyncio.sleep(0.1 * 2**number * (1 + jitter(0.2)))
            try:
                answer = await ask(
                    self._broker,
                    subjects.ACTIVATION_QUESTION,
                    question,
                    ActivationAnswer,
                    timeout=_TIMEOUT,
                )
                break
            except Invalid as error:
                raise ActivationRefused(str(error)) from error
            except RequestFailed as error:
                trouble = str(error)
            logger.debug("asking whether %s may activate: %s", manifest, trouble)
        else:
            raise ActivationUnavailable(
                f"no scheduler answered {TRIES} times whether {manifest} may activate: {trouble}"
            )
        if answer.problems:
            raise ActivationRefused("\n".join(answer.problems))

    async def _say(self, activations: list[Activation]) -> None:
        told = RunActivated(
            **self._lease.credentials, run=self._ordered.run, activations=activations
        )
        context = traceparent() or self._ordered.traceparent
        said = await self._lease.say(self._lease.event(told, traceparent=context))
        if said == "lost":
            self._on_lost()
            raise LeaseLost(f"run {self._ordered.run} was taken away from this worker")


def _as_json(one: Wanted) -> tuple[Any, str | None]:
    """An input as JSON has it, and what is wrong with the activation."""
    given = msgspec.to_builtins(one.input)
    size = len(msgspec.json.encode(given))
    if size > INPUT_LIMIT:
        return given, f"the input has {size} bytes, more than {INPUT_LIMIT}"
    if one.key is not None and len(one.key) > KEY_LIMIT:
        return given, f"the key has {len(one.key)} characters, more than {KEY_LIMIT}"
    if holds_nul(msgspec.json.encode([one.manifest, one.key, given])):
        return given, "a NUL character cannot be stored"
    return given, None
