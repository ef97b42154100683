"""Why does a piece of work wait? The answer for people, gate by gate.

It is read without the gate's lock, and so is true of a moment that may have passed.
"""

from datetime import datetime, timedelta
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
from headway_postgres_kit import Clock, Connection, Database
from headway_tracing.log import get_logger
from msgspec import structs

from headway_dispatcher.gate.store import GateTransaction
from headway_dispatcher.operate.explain_messages import before_its_turn, sentence, unheard
from headway_dispatcher.operate.wait_estimate import MOST_COUNTED, Lookout, waits_for_key
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import explanations

log = get_logger(__name__)

_MOST_HOLDERS = 20
# How long the scheduler is waited for: less than whoever asks waits for this answer.
_PATIENCE = 2.0


class Explanations:
    """Answers for one dispatcher process; all dispatchers share the questions."""

    def __init__(
        self, database: Database, broker: Broker, settings: DispatcherSettings, *, clock: Clock
    ) -> None:
        self._database = database
        self._broker = broker
        self._settings = settings
        self._clock = clock

    async def listen(self) -> None:
        """Share the questions with all other dispatchers."""
        await serve(
            self._broker,
            service="headway-dispatcher-explain",
            queue=subjects.DISPATCHERS,
            endpoints={subjects.EXPLAIN_WORK_QUESTION: typed(WorkQuestion, self.answer)},
        )

    async def answer(self, question: WorkQuestion) -> ExplainWorkAnswer:
        """How one piece of work stands."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(explanations["work"], question.work)
            if row is not None and row["state"] in ("queued", "waiting"):
                return await self._of_waiting(connection, row)
            letter = None if row is None else await _letter(connection, row)
        if row is None:
            return await self._of_unknown(question.work)
        return structs.replace(_plain(row), text=sentence(_plain(row), row, letter))

    async def _of_unknown(self, work: UUID) -> ExplainWorkAnswer:
        """What the scheduler says of work that has not come here, or is gone."""
        origin = await self._ask_origin(work)
        if origin.state == "unknown":
            raise NotFound(
                f"work {work} is not known to the dispatcher: it was never queued, is on its way, "
                "went with its manifest, or is forgotten"
            )
        return ExplainWorkAnswer(
            work=work,
            state=origin.state,
            manifest=origin.manifest,
            group=origin.group,
            job=origin.job,
            queued_at=origin.since,
            text=unheard(work, origin),
        )

    async def _ask_origin(self, work: UUID) -> OriginAnswer:
        question = WorkQuestion(work=work)
        try:
            return await ask(
                self._broker, subjects.ORIGIN_QUESTION, question, OriginAnswer, timeout=_PATIENCE
            )
        except RequestFailed as error:
            log.info("origin of work unknown", work=work, error=error)
            return OriginAnswer()

    async def _of_waiting(self, connection: Connection, row: Any) -> ExplainWorkAnswer:
        situation = await GateTransaction(connection, self._clock).situation(
            max_active=self._settings.max_active,
            worker_silence=timedelta(seconds=self._settings.orphan_timeout_seconds),
        )
        now = situation.glance.times.schedule
        gates = waiting.gates(
            _waiter(row), situation.limits, situation.load, situation.fleet, now=now
        )
        closed = [gate for gate in gates if not gate.open]
        first = closed[0] if closed else None
        lookout = Lookout(connection, row, situation, self._settings)
        holders, ahead = await lookout.holders(first), await lookout.ahead(first)
        estimate = before_its_turn(await lookout.start(closed), _start_by(row))
        before = None if ahead is None else sum(ahead.values())
        answer = structs.replace(
            _plain(row),
            gates=gates,
            reason="awaiting_gate" if first is None else first.gate,
            holders=holders[:_MOST_HOLDERS],
            holders_in_all=len(holders),
            ahead=None if before is None else min(before, MOST_COUNTED),
            ahead_or_more=before is not None and before >= MOST_COUNTED,
            estimated_start=estimate.at,
            estimate=estimate.basis,
        )
        return structs.replace(answer, text=sentence(answer, row))


async def _letter(connection: Connection, row: Any) -> Any:
    """The dead letter that work has become, if it has."""
    if row["outcome"] != "dead_lettered":
        return None
    return await connection.fetchrow(explanations["letter"], row["id"])


def _plain(row: Any) -> ExplainWorkAnswer:
    return ExplainWorkAnswer(
        work=row["id"],
        state=row["state"],
        group=row["group_name"],
        job=row["job"],
        manifest=row["manifest"],
        round=row["round"],
        attempts=row["attempts"],
        runs=row["runs"],
        queued_at=row["queued_at"],
        outcome=row["outcome"],
        expires_at=_start_by(row),
        text="",
    )


def _start_by(row: Any) -> datetime | None:
    """When it expires: if neither was it tried by then, nor has a worker claimed it."""
    begun = row["state"] == "dispatched" and (row["claimed_by"] or row["started_at"]) is not None
    if begun or row["state"] == "settled" or row["attempts"] > 0:
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
