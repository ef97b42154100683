"""Healing: ask the dispatcher about everything that is waited for, and tell again what is lost.

The broker may lose anything at any time, its whole storage included. So outstanding work is
asked about after a minute, and again after pauses that double up to an hour; at once and all
of it when a stream turns out to be new or to have gone back. An outcome that was lost comes
with the answer. Work that the dispatcher does not know is told again, but only if its message
cannot be waiting in the stream any more (`headway_decisions.healing`): a dispatcher that is
down for a day finds every message once. The same goes for cancels, and for what is to come first.
What was told again and is still not known is told with pauses that double, too.
"""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.reconcile import (
    RECONCILE_LIMIT,
    OutstandingWork,
    ReconcileAnswer,
    ReconcileQuestion,
)
from headway_contract.settled import WorkSettled
from headway_decisions import healing
from headway_decisions.healing import AskAgain, Expired, Lost, Mark, Settled, Sight, Verdict
from headway_jetstream_kit import Broker
from headway_jetstream_kit.stream_watch import done_through, see
from headway_postgres_kit import Clock, Database
from headway_service_kit.passes import Wakeup
from headway_tracing import span
from msgspec import Struct

from headway_scheduler.healing.reconcile import CannotAsk, Turn, ask_dispatcher
from headway_scheduler.healing.reconcile_settings import Standing, told
from headway_scheduler.healing.republish import republish_cancels, republish_forward, republish_work
from headway_scheduler.healing.stream_marks import read_marks, take_mark
from headway_scheduler.outcomes.intake import take_in
from headway_scheduler.store import heals

logger = logging.getLogger(__name__)

_MOST_PAGES = 20
_CONNECTION = "connection"
_IN_WORDS = {"new_stream": "a new stream", "rolled_back": "a stream that went back"}


class HealResult(Struct, frozen=True, kw_only=True):
    """What a pass found."""

    asked: int = 0
    settled: int = 0
    told_again: int = 0
    expired: int = 0
    # Cancels, and requests to come first, that were told again.
    requests: int = 0
    # There is more to ask about right away.
    unfinished: bool = False

    @property
    def healed(self) -> int:
        """How much was made good."""
        return self.settled + self.told_again + self.expired + self.requests

    def __add__(self, other: "HealResult") -> "HealResult":
        return HealResult(
            asked=self.asked + other.asked,
            settled=self.settled + other.settled,
            told_again=self.told_again + other.told_again,
            expired=self.expired + other.expired,
            requests=self.requests + other.requests,
            unfinished=self.unfinished or other.unfinished,
        )


class Doubt(Struct, frozen=True, kw_only=True):
    """A reason to ask about everything at once, and the sign by which it is known again."""

    about: str
    sign: Mark | int
    reason: str


class Healing:
    """Heals for one scheduler process; one of them at a time."""

    def __init__(
        self,
        database: Database,
        broker: Broker,
        *,
        holder: str,
        clock: Clock,
        ask_after_seconds: float,
        relay: Wakeup,
        tick: Wakeup,
    ) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock
        self._first_pause = timedelta(seconds=ask_after_seconds)
        self._relay = relay
        self._tick = tick
        self._turn = Turn(database, holder=holder)
        self._standing = Standing(database, ask=self._ask, every=ask_after_seconds, clock=clock)
        # The sign of each doubt after which everything was asked about.
        self._dealt_with: dict[str, Mark | int] = {_CONNECTION: broker.reconnects}
        # Doubts for which all work was made due; it may not all have been asked about yet.
        self._spread: list[Doubt] = []
        self._spent: Mark | None = None
        self._is_alone = False

    @property
    def _leeway(self) -> timedelta:
        """For transactions that take long: asked about is only what is twice as old."""
        return self._first_pause / 2

    async def run_once(self) -> HealResult | None:
        """Ask about all that is due; returns `None` if another scheduler does, or nobody can."""
        if not await self._turn.take():
            return None
        try:
            result = await self._heal()
        except CannotAsk as reason:
            self._note_alone(reason)
            return None
        finally:
            await self._turn.end()
        if result is not None and result.healed:
            logger.warning(
                "healed: %d outcome(s) heard late, %d piece(s) of work told again, %d expired, "
                "%d request(s) to cancel or to come first told again",
                result.settled,
                result.told_again,
                result.expired,
                result.requests,
            )
            self._tick.call()
        return result

    async def _heal(self) -> HealResult | None:
        reconnects = self._broker.reconnects
        sights = await self._look()
        if sights is None:
            return None
        marks = await read_marks(self._database)
        doubts = self._doubts(marks, sights, reconnects)
        if doubts and doubts != self._spread:
            await self._ask_about_all(doubts)
            self._spread = doubts
        work_mark, work_sight = marks.get(subjects.WORK_STREAM), sights[subjects.WORK_STREAM]
        result = await self._ask_pages(work_mark, work_sight)
        if result.unfinished:
            return result

        result += await self._ask_about_standing(work_mark, work_sight)
        if result.told_again or result.requests:
            self._relay.call()
        await take_mark(self._database, self._broker, marks, sights, clock=self._clock)
        self._dealt_with |= {doubt.about: doubt.sign for doubt in doubts}
        self._spread = []
        return result

    async def _ask(self, question: ReconcileQuestion) -> ReconcileAnswer:
        answer = await ask_dispatcher(self._broker, self._turn, question)
        self._is_alone = False
        return answer

    def _note_alone(self, reason: CannotAsk) -> None:
        """Log that nobody can be asked, once until somebody answers again."""
        if not self._is_alone:
            logger.warning("healing waits: %s", reason)
        self._is_alone = True

    async def _ask_about_standing(self, mark: Mark | None, sight: Sight) -> HealResult:
        """Each mark serves once, because whatever was told again by it comes behind it."""
        usable = None if mark == self._spent else mark

        def may_be_lost(told_at: datetime) -> bool:
            lost = healing.is_lost(told_at, usable, sight, leeway=self._leeway) is not None
            if lost:
                self._spent = mark
            return lost

        return HealResult(told_again=await self._standing.ask_about(may_be_lost))

    async def _look(self) -> dict[str, Sight] | None:
        """The two streams between the services; none while one is missing.

        What is missing is the dispatcher's business, which makes it again or says so.
        """
        sights: dict[str, Sight] = {}
        for stream, consumer in (
            (subjects.WORK_STREAM, subjects.WORK_CONSUMER),
            (subjects.SETTLED_STREAM, subjects.SETTLED_CONSUMER),
        ):
            seen = await see(self._broker, stream)
            if seen is None:
                return None
            done = await done_through(self._broker, stream, consumer, seen)
            sights[stream] = Sight(
                created=seen.created, last_sequence=seen.last_sequence, done_through=done or 0
            )
        return sights

    def _doubts(
        self, marks: Mapping[str, Mark], sights: Mapping[str, Sight], reconnects: int
    ) -> list[Doubt]:
        """Return why everything should be asked about at once, without what was dealt with."""
        doubts = [
            Doubt(about=stream, sign=mark, reason=f"{stream} is {_IN_WORDS[reached]}")
            for stream, mark in marks.items()
            if (reached := healing.reach(mark, sights[stream])) in _IN_WORDS
        ]
        doubts.append(
            Doubt(about=_CONNECTION, sign=reconnects, reason="the connection was made anew")
        )
        return [one for one in doubts if self._dealt_with.get(one.about) != one.sign]

    async def _ask_about_all(self, doubts: Sequence[Doubt]) -> None:
        self._standing.ask_at_once()
        async with self._database.transaction() as connection:
            now = await self._clock.now(connection)
            woken = await connection.fetchval(heals["ask_all"], now)
        if woken:
            reasons = ", ".join(doubt.reason for doubt in doubts)
            logger.warning("%s: asking about all outstanding work at once (%d)", reasons, woken)

    async def _ask_pages(self, mark: Mark | None, sight: Sight) -> HealResult:
        """Ask page by page, so many in one pass."""
        result = HealResult()
        for _ in range(_MOST_PAGES):
            async with self._database.acquire() as connection:
                now = await self._clock.now(connection)
                rows = await connection.fetch(
                    heals["due"], now, now - self._first_pause, RECONCILE_LIMIT
                )
            if not rows:
                return result
            works = [_asked(row) for row in rows]
            with span("heal", works=len(works)):
                answer = await self._ask(ReconcileQuestion(works=works))
                verdicts = healing.judge(
                    works,
                    answer,
                    republished_at=_times(rows, "republished_at"),
                    mark=mark,
                    sight=sight,
                    leeway=self._leeway,
                )
                page = await self._record(rows, verdicts)
                page += await self._tell_requests(rows, answer, mark, sight)
            result += page
            if page.asked == 0:
                return result
        return result + HealResult(unfinished=True)

    async def _record(self, rows: Sequence[Any], verdicts: Mapping[UUID, Verdict]) -> HealResult:
        """Outcomes as the intake records them; then what is told again, and when to ask next."""
        by_id = {row["id"]: row for row in rows}
        lost = [work for work, verdict in verdicts.items() if isinstance(verdict, Lost)]
        async with self._database.transaction() as connection:
            now = await self._clock.now(connection)
            ends = [end for row in rows if (end := _end(row, verdicts[row["id"]], now))]
            await take_in(connection, [told(one, one.work, now) for one in ends], now=now)
        async with self._database.transaction() as connection:
            told_again = await republish_work(connection, lost, now=now) if lost else 0
            again = {
                work: self._next_ask(by_id[work], verdict, now)
                for work, verdict in verdicts.items()
                if not isinstance(verdict, Settled | Expired)
            }
            await connection.execute(
                heals["asked"],
                list(again),
                [at for at, _ in again.values()],
                [asks for _, asks in again.values()],
                now,
            )
        left = sum(isinstance(verdict, AskAgain) for verdict in verdicts.values())
        expired = sum(isinstance(verdict, Expired) for verdict in verdicts.values())
        return HealResult(
            asked=len(rows) - left,
            settled=len(ends) - expired,
            told_again=told_again,
            expired=expired,
        )

    async def _tell_requests(
        self, rows: Sequence[Any], answer: ReconcileAnswer, mark: Mark | None, sight: Sight
    ) -> HealResult:
        """What was asked of work that is under way, and never came."""
        cancels = healing.unheard(
            answer.not_cancelled,
            _times(rows, "cancel_requested_at"),
            mark,
            sight,
            leeway=self._leeway,
        )
        forward = healing.unheard(
            answer.not_brought_forward,
            _times(rows, "forward_requested_at"),
            mark,
            sight,
            leeway=self._leeway,
        )
        if not (cancels or forward):
            return HealResult()
        async with self._database.transaction() as connection:
            now = await self._clock.now(connection)
            told = await republish_cancels(connection, cancels, now=now)
            told += await republish_forward(connection, forward, now=now)
        return HealResult(requests=told)

    def _next_ask(self, row: Any, verdict: Verdict, now: datetime) -> tuple[datetime, int]:
        asks: int = row["reconcile_count"]
        match verdict:
            case AskAgain():
                return now, asks
            case Lost():
                return now + healing.pause(row["republish_count"], first=self._first_pause), 0
            case _:
                pause = healing.pause(asks, first=self._first_pause)
                return now + pause, min(asks + 1, 30)


def _times(rows: Sequence[Any], column: str) -> dict[UUID, datetime]:
    """When each was told, where it was."""
    return {row["id"]: row[column] for row in rows if row[column] is not None}


def _asked(row: Any) -> OutstandingWork:
    return OutstandingWork(
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        queued_at=row["queued_at"],
        cancelled=row["cancel_requested_at"] is not None,
        brought_forward_at=row["forward_requested_at"],
    )


def _end(row: Any, verdict: Verdict, now: datetime) -> WorkSettled | None:
    """The outcome that a verdict brings, if it brings one."""
    match verdict:
        case Settled(end=end):
            return end
        case Expired():
            return WorkSettled(
                work=row["id"],
                round=row["round"],
                manifest_id=row["manifest_id"],
                group="unknown",
                outcome="unknown",
                reason=healing.FORGOTTEN,
                runs=0,
                attempts=0,
                settled_at=now,
            )
    return None
