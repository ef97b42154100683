"""The healing pass: reconcile outstanding work with the dispatcher.

Work is reconciled after a minute, and again after pauses that double up to an hour; all of it at
once if a stream is new or went back in time. A lost outcome comes with the answer. Work that the
dispatcher does not know is republished, but only if its message cannot wait in the stream any more
(`headway_decisions.healing`), so a dispatcher that was down for a day finds every message once. The
same holds for requests to cancel work and to bring it forward. Republished work that stays unknown
is republished with doubling pauses too.

The turn of a scheduler to heal is a row with a time, not a lock, so no transaction is open during a
request. If a scheduler dies in its turn, another takes over when the turn has lapsed. If two heal
at once, they only republish a message twice, which is harmless.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_contract import reconcile, subjects
from headway_contract.settled import WorkSettled
from headway_decisions import healing
from headway_decisions.healing import AskAgain, Expired, Lost, Mark, Settled, Sight, Verdict
from headway_errors import NoResponder, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_postgres_kit import Database
from headway_service_kit.passes import ExpectedFault, Wakeup
from headway_tracing import span
from headway_tracing.log import get_logger
from msgspec import Struct, structs

from headway_scheduler.healing.reconcile_settings import SettingsReconciler, received
from headway_scheduler.healing.republish import republish_cancels, republish_forward, republish_work
from headway_scheduler.healing.stream_marks import read_marks, read_sights, take_marks
from headway_scheduler.outcomes.settle import take_in
from headway_scheduler.store import heals, writing

log = get_logger(__name__)

_ANSWER_SECONDS = 10.0
# Longer than a request and the recording of its answer usually take.
_TURN = timedelta(seconds=20)
_MOST_PAGES = 20
_MOST_COUNTED = 30
_CONNECTION = "connection"

# Reasons to reconcile everything at once: the sign of the last occurrence, by its subject.
Suspicions = dict[str, tuple[str, Mark | int]]


class CannotAsk(Exception):
    """No dispatcher runs, or another scheduler heals by now."""


class ReconcileFailed(ExpectedFault):
    """The dispatcher's answer did not arrive or is an error."""


class HealResult(Struct, kw_only=True):
    """Counts of a pass; `requests` are republished requests to cancel or to bring forward."""

    reconciled: int = 0
    settled: int = 0
    republished: int = 0
    expired: int = 0
    requests: int = 0
    # More work is due for reconciliation right away.
    unfinished: bool = False

    @property
    def healed(self) -> int:
        """Return the number of repairs."""
        return self.settled + self.republished + self.expired + self.requests


@dataclass
class Healing:
    """The pass of one scheduler process; one process heals at a time."""

    database: Database
    broker: Broker
    _: KW_ONLY
    holder: str
    ask_after_seconds: float
    relay: Wakeup
    tick: Wakeup
    # Suspicions that made all work due; it may not all be reconciled yet.
    _spread: Suspicions = field(default_factory=dict)
    _used_mark: Mark | None = None
    _is_alone: bool = False

    def __post_init__(self) -> None:
        self._first_pause = timedelta(seconds=self.ask_after_seconds)
        # For long transactions: only work that is twice as old is reconciled.
        self._leeway = self._first_pause / 2
        self._settings = SettingsReconciler(self.database, self._ask, every=self.ask_after_seconds)
        # The sign of each suspicion after which everything was reconciled.
        self._dealt_with: Suspicions = {_CONNECTION: ("reconnected", self.broker.reconnects)}

    async def run_once(self) -> HealResult | None:
        """Reconcile everything that is due; `None` if another scheduler does, or it is impossible.

        That is so while no dispatcher answers, or a stream is missing.
        """
        if not await self._take_turn():
            return None
        try:
            result = await self._heal()
        except CannotAsk as reason:
            if not self._is_alone:
                log.warning("healing waits", reason=reason)
            self._is_alone = True
            return None
        finally:
            async with self.database.acquire() as connection:
                await connection.execute(heals["end_turn"], self.holder)
        if result is not None and result.healed:
            log.warning("healed", **structs.asdict(result))
            self.tick.call()
        return result

    async def _heal(self) -> HealResult | None:
        reconnects = self.broker.reconnects
        sights = await read_sights(self.broker)
        if sights is None:
            # The dispatcher creates missing streams, or reports them.
            return None
        marks = await read_marks(self.database)
        suspicions = self._suspicions(marks, sights, reconnects)
        if suspicions and suspicions != self._spread:
            await self._reconcile_all_now(suspicions)
            self._spread = suspicions
        mark, sight = marks.get(subjects.WORK_STREAM), sights[subjects.WORK_STREAM]
        result = await self._reconcile_work(mark, sight)
        if result.unfinished:
            return result
        result.republished += await self._reconcile_settings(mark, sight)
        if result.republished or result.requests:
            self.relay.call()
        await take_marks(self.database, self.broker, marks, sights)
        self._dealt_with |= suspicions
        self._spread = {}
        return result

    async def _ask(self, question: reconcile.ReconcileQuestion) -> reconcile.ReconcileAnswer:
        """Ask the dispatcher; raises `CannotAsk` or `ReconcileFailed`."""
        if not await self._take_turn():
            raise CannotAsk("another scheduler heals")
        try:
            answer = await ask(
                self.broker,
                subjects.RECONCILE_QUESTION,
                question,
                reconcile.ReconcileAnswer,
                timeout=_ANSWER_SECONDS,
            )
        except NoResponder as error:
            raise CannotAsk(str(error)) from error
        except RequestFailed as error:
            message = f"reconcile failed: kind={error.kind.value} error={error}"
            raise ReconcileFailed(message) from error
        self._is_alone = False
        return answer

    async def _take_turn(self) -> bool:
        """Begin or extend the turn of this scheduler; false if another one has it."""
        async with self.database.acquire() as connection:
            taken = await connection.fetchval(heals["take_turn"], self.holder, _TURN)
        return taken is not None

    def _suspicions(
        self, marks: Mapping[str, Mark], sights: Mapping[str, Sight], reconnects: int
    ) -> Suspicions:
        """Return new or rolled back streams, and a new connection, that were not dealt with."""
        found: Suspicions = {_CONNECTION: ("reconnected", reconnects)}
        for stream, mark in marks.items():
            reached = healing.reach(mark, sights[stream])
            if reached in ("new_stream", "rolled_back"):
                found[stream] = (reached, mark)
        return {about: sign for about, sign in found.items() if self._dealt_with.get(about) != sign}

    async def _reconcile_all_now(self, suspicions: Suspicions) -> None:
        self._settings.run_at_once()
        async with writing(self.database) as (connection, now):
            works = await connection.fetchval(heals["reconcile_all"], now)
        if works:
            reasons = ", ".join(f"{about}: {reason}" for about, (reason, _) in suspicions.items())
            log.warning("reconciling all outstanding work at once", reasons=reasons, works=works)

    async def _reconcile_settings(self, mark: Mark | None, sight: Sight) -> int:
        # Each mark serves once: messages that were republished because of it come behind it.
        usable = None if mark == self._used_mark else mark

        def is_lost(announced_at: datetime) -> bool:
            lost = healing.is_lost(announced_at, usable, sight, leeway=self._leeway) is not None
            if lost:
                self._used_mark = mark
            return lost

        return await self._settings.run(is_lost)

    async def _reconcile_work(self, mark: Mark | None, sight: Sight) -> HealResult:
        """Reconcile due work page by page, a limited number of pages in one pass."""
        result = HealResult()
        for _ in range(_MOST_PAGES):
            async with self.database.acquire() as connection:
                now = await self.database.clock.now(connection)
                rows = await connection.fetch(
                    heals["due"], now, now - self._first_pause, reconcile.RECONCILE_LIMIT
                )
            if not rows:
                return result
            works = [
                reconcile.OutstandingWork(
                    work=row["id"],
                    round=row["round"],
                    manifest_id=row["manifest_id"],
                    queued_at=row["queued_at"],
                    cancelled=row["cancel_requested_at"] is not None,
                    brought_forward_at=row["forward_requested_at"],
                )
                for row in rows
            ]
            with span("heal", works=len(works)):
                answer = await self._ask(reconcile.ReconcileQuestion(works=works))
                verdicts = healing.judge(
                    works,
                    answer,
                    republished_at=_times(rows, "republished_at"),
                    mark=mark,
                    sight=sight,
                    leeway=self._leeway,
                )
                await self._record(rows, verdicts, result)
                await self._republish_requests(rows, answer, mark, sight, result)
            if all(isinstance(verdict, AskAgain) for verdict in verdicts.values()):
                return result
        result.unfinished = True
        return result

    async def _record(
        self, rows: Sequence[Any], verdicts: Mapping[UUID, Verdict], result: HealResult
    ) -> None:
        """Take in outcomes as the intake does, then republish lost work and set the next times."""
        by_id = {row["id"]: row for row in rows}
        lost = [work for work, verdict in verdicts.items() if isinstance(verdict, Lost)]
        async with writing(self.database) as (connection, now):
            ends = [end for row in rows if (end := _end(row, verdicts[row["id"]], now))]
            await take_in(connection, [received(end, end.work, now) for end in ends], now=now)
        async with self.database.transaction() as connection:
            if lost:
                result.republished += await republish_work(connection, lost, now=now)
            due = {
                work: self._next_time(by_id[work], verdict, now)
                for work, verdict in verdicts.items()
                if not isinstance(verdict, Settled | Expired)
            }
            times, counts = [at for at, _ in due.values()], [count for _, count in due.values()]
            await connection.execute(heals["reconciled"], list(due), times, counts, now)
        result.reconciled += sum(not isinstance(each, AskAgain) for each in verdicts.values())
        expired = sum(isinstance(verdict, Expired) for verdict in verdicts.values())
        result.expired += expired
        result.settled += len(ends) - expired

    def _next_time(self, row: Any, verdict: Verdict, now: datetime) -> tuple[datetime, int]:
        """Return when work is reconciled next, and how often in a row it was under way."""
        count: int = row["reconcile_count"]
        match verdict:
            case AskAgain():
                return now, count
            case Lost():
                return now + healing.pause(row["republish_count"], first=self._first_pause), 0
        pause = healing.pause(count, first=self._first_pause)
        return now + pause, min(count + 1, _MOST_COUNTED)

    async def _republish_requests(
        self,
        rows: Sequence[Any],
        answer: reconcile.ReconcileAnswer,
        mark: Mark | None,
        sight: Sight,
        result: HealResult,
    ) -> None:
        """Republish requests about outstanding work that the dispatcher never received."""
        cancels, forward = (
            healing.unheard(ids, _times(rows, column), mark, sight, leeway=self._leeway)
            for ids, column in (
                (answer.not_cancelled, "cancel_requested_at"),
                (answer.not_brought_forward, "forward_requested_at"),
            )
        )
        if cancels or forward:
            async with writing(self.database) as (connection, now):
                result.requests += len(await republish_cancels(connection, cancels, now=now))
                result.requests += await republish_forward(connection, forward, now=now)


def _times(rows: Sequence[Any], column: str) -> dict[UUID, datetime]:
    return {row["id"]: row[column] for row in rows if row[column] is not None}


def _end(row: Any, verdict: Verdict, now: datetime) -> WorkSettled | None:
    """Return the outcome of a verdict, or `None` if the work is not settled."""
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
