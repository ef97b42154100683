"""Canaries: dead letters of one failure, retried one, then ten, then all.

Each is a small task of this process, and each of its steps an ordinary request to retry, by the
person who began it. Its progress can be read by its id while the console runs. Nothing of it is
stored: when the console stops, it ends, and what it has asked for goes on. What was retried stands
in the history, so nothing is lost by beginning another.
"""

import asyncio
import logging
from collections import Counter
from datetime import datetime
from typing import Literal, assert_never
from uuid import UUID

from headway.control import PATIENT_SECONDS, Control, RequestFailed
from headway_clock import new_id, utc_now
from headway_contract import subjects
from headway_contract.dispatching import LetterFilter, LettersChanged, RetryRequest
from headway_decisions.canaries import (
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

from headway_console.reading.dead_letters import count_of_failure, read_fates

logger = logging.getLogger(__name__)

_LOOK_EVERY_SECONDS = 0.5
_KEPT = 50
# Letters that were asked for: the others of an answer somebody else has seen to.
_TAKEN = ("retried", "waits")


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
    state: Literal["running", "stopped", "finished", "failed"] = "running"
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

    def of_failure(self, fingerprint: str) -> Progress | None:
        """The latest of a failure."""
        told = [one for one in self._known.values() if one.fingerprint == fingerprint]
        return told[-1] if told else None

    async def begin(self, fingerprint: str, *, actor: str) -> Progress:
        """Begin with a failure, or join the one that is at it."""
        latest = self.of_failure(fingerprint)
        if latest is not None and latest.state == "running":
            return latest
        async with self._database.acquire() as connection:
            awaiting = await count_of_failure(connection, fingerprint)
        begun = Progress(
            id=new_id(),
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
        more = True
        request = RetryRequest(filter=LetterFilter(fingerprint=told.fingerprint), actor=told.actor)
        while True:
            told = await self._look(told)
            verdict = judge(Standing(step=told.step, retried=told.retried, more=more))
            told = self._keep(replace(told, reason=verdict.reason))
            match verdict:
                case RetryNext():
                    answer = await self._ask(request, verdict.letters)
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
    taken = tuple(
        Retried(letter=one.dead_letter, step=verdict.step, fate="under_way")
        for one in answer.results
        if one.result in _TAKEN
    )
    return replace(told, step=verdict.step, retried=told.retried + taken)


def _behind(request: RetryRequest, answer: LettersChanged) -> RetryRequest:
    """The request that goes on behind an answer, and leaves out letters that came about since."""
    meant = replace(request.filter or LetterFilter(), created_before=answer.created_before)
    return replace(request, filter=meant, after=answer.last)
