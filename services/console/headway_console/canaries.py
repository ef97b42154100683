"""Canaries: dead letters of one failure, retried one, then ten, then all.

Each is a small task of this process, and each of its steps an ordinary request to retry, by the
person who began it. Its requests have keys, by which the dispatcher keeps its answers: so another
console, or this one after a restart, can say how far it got. When the console stops, it goes no
further, and what it has asked for goes on.
"""

import asyncio
import logging
from collections import Counter
from datetime import datetime
from typing import Literal, assert_never
from uuid import UUID

from headway.client.control import PATIENT_SECONDS, Control, Refused, RequestFailed
from headway_clock import new_id, utc_now
from headway_contract import subjects
from headway_contract.dispatching import LetterFilter, LettersChanged, RetryRequest
from headway_decisions.retries.canaries import (
    AT_ONCE,
    STEPS,
    Finished,
    Retried,
    RetryNext,
    Standing,
    Stopped,
    Wait,
    judge,
)
from headway_postgres_kit import Database, DatabaseUnavailable
from msgspec import Struct
from msgspec.structs import replace

from headway_console.reading.canaries import key_of, read_begun, read_stages
from headway_console.reading.dead_letters import count_of_failure, read_fates

logger = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 0.5
_KEPT = 50
_NOT_HERE = (
    "it got this far, and this console does not go on with it: the one that began it has stopped, "
    "or is another. Begin another for the dead letters that still await somebody"
)
# Letters that were asked for: the others of an answer somebody else has seen to.
_TAKEN = ("retried", "waits")


CanaryState = Literal["running", "stopped", "finished", "failed"]


class Step(Struct, frozen=True, kw_only=True):
    """One step, for people: how many it retried, and what became of them."""

    size: int | None
    fates: dict[str, int]


class Progress(Struct, frozen=True, kw_only=True):
    """How a canary stands."""

    id: UUID
    fingerprint: str
    actor: str
    began_at: datetime
    awaiting: int
    state: CanaryState = "running"
    reason: str = "it begins"
    ended_at: datetime | None = None
    step: int = 0
    retried: tuple[Retried, ...] = ()

    @property
    def steps(self) -> list[Step]:
        """Every step, those to come included."""
        return [
            Step(size=size, fates=Counter(one.fate for one in self.retried if one.step == number))
            for number, size in enumerate(STEPS)
        ]


class Canaries:
    """The canaries of this console."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self._known: dict[UUID, Progress] = {}
        self._tasks: dict[UUID, asyncio.Task[None]] = {}

    def read(self, canary: UUID) -> Progress | None:
        """How one stands; none if this console has begun no such."""
        return self._known.get(canary)

    async def find(self, canary: UUID) -> Progress | None:
        """How one stands, also one that another console has begun, or this one before a restart."""
        return self.read(canary) or await self._read_back(canary)

    def of_failure(self, fingerprint: str) -> Progress | None:
        """The latest of a failure."""
        told = [one for one in self._known.values() if one.fingerprint == fingerprint]
        return told[-1] if told else None

    async def begin(self, fingerprint: str, *, actor: str, canary: UUID | None = None) -> Progress:
        """Begin with a failure, or join the one that is at it; with an id that is known, join it.

        Raises `Refused` if it is known as the canary of another failure.
        """
        known = None if canary is None else await self.find(canary)
        if known is not None:
            if known.fingerprint != fingerprint:
                raise Refused(
                    f"the key was used before with other parameters, for {known.fingerprint!r}: "
                    "use another key, or the same parameters"
                )
            return known
        latest = self.of_failure(fingerprint)
        if latest is not None and latest.state == "running":
            return latest
        async with self._database.acquire() as connection:
            awaiting = await count_of_failure(connection, fingerprint)
        begun = Progress(
            id=canary or new_id(),
            fingerprint=fingerprint,
            actor=actor,
            began_at=utc_now(),
            awaiting=awaiting,
        )
        self._keep(begun)
        self._tasks[begun.id] = asyncio.create_task(self._run(begun), name=f"canary-{begun.id}")
        return begun

    def stop_one(self, canary: UUID, *, actor: str) -> None:
        """Go no further with one; what is under way goes on."""
        told = self._known.get(canary)
        if told is not None and told.state == "running":
            self._tasks[canary].cancel()
            self._end(told, "stopped", f"{actor} stopped it")

    async def stop(self) -> None:
        """Go no further with any of them."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, begun: Progress) -> None:
        try:
            await self._go_through(begun)
        except (RequestFailed, DatabaseUnavailable) as error:
            self._end(self._known[begun.id], "failed", str(error))
        except Exception:
            logger.exception("the canary of %s failed", begun.fingerprint)
            self._end(
                self._known[begun.id], "failed", "this is a defect of the console: see its log"
            )

    async def _go_through(self, told: Progress) -> None:
        """Look, judge, and do what the verdict says, until it is over."""
        more, number = True, 0
        request = RetryRequest(filter=LetterFilter(fingerprint=told.fingerprint), actor=told.actor)
        while True:
            told = await self._look(told)
            verdict = judge(Standing(step=told.step, retried=told.retried, more=more))
            told = self._keep(replace(told, reason=verdict.reason))
            match verdict:
                case RetryNext():
                    number += 1
                    key = key_of(told.id, verdict.step, number)
                    answer = await self._ask(replace(request, key=key), verdict.letters)
                    more, request = answer.more, _behind(request, answer)
                    told = self._keep(_asked(told, verdict, answer))
                case Wait():
                    await asyncio.sleep(_LOOK_EVERY_SECONDS)
                case Stopped():
                    return self._end(told, "stopped", verdict.reason)
                case Finished():
                    return self._end(told, "finished", verdict.reason)
                case _:
                    assert_never(verdict)

    async def _read_back(self, canary: UUID) -> Progress | None:
        """How one that does not run here stands, by what the dispatcher keeps of it."""
        async with self._database.acquire() as connection:
            stages = await read_stages(connection, canary)
            retried = tuple(one for stage in stages for one in _taken(stage.answer, stage.step))
            if not retried:
                return None
            begun = await read_begun(connection, retried[0].letter)
            awaiting = await count_of_failure(connection, begun.fingerprint)
        found = Progress(
            id=canary,
            fingerprint=begun.fingerprint,
            actor=begun.actor,
            began_at=stages[0].at,
            awaiting=awaiting + len(retried),
            step=stages[-1].step,
            retried=retried,
        )
        return _as_it_stands(await self._look(found), more=stages[-1].answer.more)

    async def _look(self, told: Progress) -> Progress:
        """What has become of those under way."""
        open_ = [one.letter for one in told.retried if one.fate == "under_way"]
        if not open_:
            return told
        async with self._database.acquire() as connection:
            fates = await read_fates(connection, open_)
        return replace(
            told,
            retried=tuple(
                replace(one, fate=fates[one.letter]) if one.letter in fates else one
                for one in told.retried
            ),
        )

    async def _ask(self, request: RetryRequest, letters: int) -> LettersChanged:
        """Retry the next, the oldest first; only those that awaited somebody when it began."""
        return await self._control.ask(
            subjects.RETRY_REQUEST,
            replace(request, limit=min(letters, AT_ONCE)),
            LettersChanged,
            timeout=PATIENT_SECONDS,
        )

    def _end(
        self, told: Progress, state: Literal["stopped", "finished", "failed"], reason: str
    ) -> None:
        self._keep(replace(told, state=state, reason=reason, ended_at=utc_now()))

    def _keep(self, told: Progress) -> Progress:
        self._known[told.id] = told
        ended = [one.id for one in self._known.values() if one.state != "running"]
        for old in ended[: max(0, len(self._known) - _KEPT)]:
            self._tasks.pop(old, None)
            del self._known[old]
        return told


def _asked(told: Progress, verdict: RetryNext, answer: LettersChanged) -> Progress:
    taken = _taken(answer, verdict.step)
    return replace(told, step=verdict.step, retried=told.retried + taken)


def _taken(answer: LettersChanged, step: int) -> tuple[Retried, ...]:
    return tuple(
        Retried(letter=one.dead_letter, step=step, fate="under_way")
        for one in answer.results
        if one.result in _TAKEN
    )


def _as_it_stands(told: Progress, *, more: bool) -> Progress:
    """One that does not run here: what would be next says whether it has come to its end."""
    verdict = judge(Standing(step=told.step, retried=told.retried, more=more))
    match verdict:
        case Wait():
            return replace(told, reason=verdict.reason)
        case Stopped():
            return replace(told, state="stopped", reason=verdict.reason)
        case Finished():
            return replace(told, state="finished", reason=verdict.reason)
        case RetryNext():
            return replace(told, state="stopped", reason=_NOT_HERE)
        case _:
            assert_never(verdict)


def _behind(request: RetryRequest, answer: LettersChanged) -> RetryRequest:
    """The request that goes on behind an answer, and leaves out letters that came about since."""
    meant = replace(request.filter or LetterFilter(), created_before=answer.created_before)
    return replace(request, filter=meant, after=answer.last)
