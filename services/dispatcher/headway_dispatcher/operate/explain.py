"""Explain why a piece of work waits, gate by gate.

The answer is read without the gate's lock, so it may be outdated when it arrives.
"""

from datetime import datetime
from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.work_queue import ExplainWorkAnswer, OriginAnswer, WorkQuestion
from headway_decisions.capacity import waiting
from headway_decisions.capacity.waiting import Waiter
from headway_errors import NotFound, RequestFailed
from headway_jetstream_kit import Broker
from headway_jetstream_kit.ask import ask
from headway_jetstream_kit.endpoints import serve, typed
from headway_postgres_kit import Connection, Database
from headway_tracing.log import get_logger
from msgspec import structs

from headway_dispatcher.gate.situation import read_situation
from headway_dispatcher.operate.explain_messages import describe, expires_first, name_work
from headway_dispatcher.operate.wait_estimate import MOST_COUNTED, WaitEstimate, waits_for_key
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import explanations

log = get_logger(__name__)

_MOST_HOLDERS = 20
# Less than the caller waits for this answer.
_SCHEDULER_TIMEOUT = 2.0


class Explanations:
    """Answers questions about work, for one dispatcher process."""

    def __init__(self, database: Database, broker: Broker, settings: DispatcherSettings) -> None:
        self._database = database
        self._broker = broker
        self._settings = settings

    async def listen(self) -> None:
        """Share the questions with the other dispatchers."""
        await serve(
            self._broker,
            service="headway-dispatcher-explain",
            queue=subjects.DISPATCHERS,
            endpoints={subjects.EXPLAIN_WORK_QUESTION: typed(WorkQuestion, self.answer)},
        )

    async def answer(self, question: WorkQuestion) -> ExplainWorkAnswer:
        """Return the state of a piece of work."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(explanations["work"], question.work)
            if row is not None:
                if row["state"] in ("queued", "waiting"):
                    return await self._explain_waiting(connection, row)
                letter = None
                if row["outcome"] == "dead_lettered":
                    letter = await connection.fetchrow(explanations["letter"], row["id"])
                answer = _answer(row)
                return structs.replace(answer, text=describe(answer, row, letter))
        return await self._ask_scheduler(question.work)

    async def _ask_scheduler(self, work: UUID) -> ExplainWorkAnswer:
        """Return the scheduler's answer about work that is not stored here."""
        question = WorkQuestion(work=work)
        timeout = _SCHEDULER_TIMEOUT
        try:
            origin = await ask(
                self._broker, subjects.ORIGIN_QUESTION, question, OriginAnswer, timeout=timeout
            )
        except RequestFailed as error:
            log.info("origin of work unknown", work=work, error=error)
            origin = OriginAnswer()
        if origin.state == "unknown":
            raise NotFound(
                f"work {work} is not known to the dispatcher: it was never queued, has not arrived "
                "yet, or was deleted"
            )
        return ExplainWorkAnswer(
            work=work,
            state=origin.state,
            manifest=origin.manifest,
            group=origin.group,
            job=origin.job,
            queued_at=origin.since,
            text=f"{name_work(work, origin)} {origin.text}.",
        )

    async def _explain_waiting(self, connection: Connection, row: Any) -> ExplainWorkAnswer:
        situation = await read_situation(connection, self._database, self._settings)
        gates = waiting.gates(
            _waiter(row), situation.limits, situation.load, situation.fleet, now=situation.now
        )
        closed = [gate for gate in gates if not gate.open]
        first = closed[0] if closed else None
        estimates = WaitEstimate(connection, row, situation, self._settings)
        holders, ahead = await estimates.holders(first), await estimates.ahead(first)
        estimate = expires_first(await estimates.start(closed), _start_by(row))
        before = None if ahead is None else sum(ahead.values())
        answer = structs.replace(
            _answer(row),
            gates=gates,
            reason="awaiting_gate" if first is None else first.gate,
            holders=holders[:_MOST_HOLDERS],
            holders_in_all=len(holders),
            ahead=None if before is None else min(before, MOST_COUNTED),
            ahead_or_more=before is not None and before >= MOST_COUNTED,
            estimated_start=estimate.at,
            estimate=estimate.basis,
        )
        return structs.replace(answer, text=describe(answer, row))


def _answer(row: Any) -> ExplainWorkAnswer:
    """Return the columns of work that every answer has."""
    names = ("state", "job", "manifest", "round", "attempts", "runs", "queued_at", "outcome")
    fields = {name: row[name] for name in names}
    return ExplainWorkAnswer(
        work=row["id"], group=row["group_name"], expires_at=_start_by(row), text="", **fields
    )


def _start_by(row: Any) -> datetime | None:
    """Return when work expires; `None` if it was tried or a worker claimed it."""
    claimed = row["state"] == "dispatched" and (row["claimed_by"] or row["started_at"]) is not None
    if claimed or row["state"] == "settled" or row["attempts"] > 0:
        return None
    start_by: datetime | None = row["start_by"]
    return start_by


def _waiter(row: Any) -> Waiter:
    return Waiter(
        group=row["group_name"],
        job=row["job"],
        not_before=row["not_before"],
        start_by=_start_by(row),
        manifest=row["manifest"],
        manifest_disabled=row["manifest_disabled"],
        key=row["concurrency_key"],
        key_limit=row["concurrency_limit"],
        key_active=row["key_active"],
        key_kept=waits_for_key(row) and not row["key_noted"],
    )
