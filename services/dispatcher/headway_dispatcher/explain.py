"""Why does a piece of work wait? The answer for people, gate by gate.

It is read without the gate's lock, and so is true of a moment that may have passed.
"""

import statistics
from datetime import datetime, timedelta
from typing import Any

from headway_contract import subjects
from headway_contract.waiting import (
    ExplainWorkAnswer,
    ExplainWorkQuestion,
    GateStatus,
    SlotHolder,
)
from headway_decisions import waiting
from headway_decisions.capacity import Limits
from headway_decisions.waiting import Waiter
from headway_jetstream_kit import Broker
from headway_jetstream_kit.controlling import Unknown, serve, typed
from headway_postgres_kit import Clock, Connection, Database
from msgspec import Struct, structs

from headway_dispatcher.gate_store import GateTransaction
from headway_dispatcher.sentences import sentence
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import explanations

MOST_COUNTED = 10_000
_MOST_HOLDERS = 20
# Gates that a run which ends opens; the others open by themselves or by somebody's hand.
_HELD_BY_RUNS = ("global_cap", "group_cap", "job_cap", "key", "workers_full")


class _Estimate(Struct, frozen=True, kw_only=True):
    at: datetime | None = None
    basis: str = ""


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
            endpoints={subjects.EXPLAIN_WORK_QUESTION: typed(ExplainWorkQuestion, self.answer)},
        )

    async def answer(self, question: ExplainWorkQuestion) -> ExplainWorkAnswer:
        """How one piece of work stands."""
        async with self._database.transaction() as connection:
            row = await connection.fetchrow(explanations["work"], question.work)
            if row is None:
                raise Unknown(
                    f"work {question.work} is not known to the dispatcher: it was never queued, is "
                    "on its way, or went with its manifest"
                )
            if row["state"] in ("queued", "waiting"):
                return await self._of_waiting(connection, row)
        return _said(_plain(row), row)

    async def _of_waiting(self, connection: Connection, row: Any) -> ExplainWorkAnswer:
        situation = await GateTransaction(connection, self._clock).situation(
            max_active=self._settings.max_active,
            worker_silence=timedelta(seconds=self._settings.orphan_timeout_seconds),
        )
        now = situation.glance.times.schedule
        gates = waiting.gates(
            _waiter(row), situation.limits, situation.load, situation.fleet, now=now
        )
        closed = next((gate for gate in gates if not gate.open), None)
        answer = structs.replace(
            _plain(row),
            gates=gates,
            reason="awaiting_gate" if closed is None else closed.gate,
        )
        holders = await _holders(connection, row, closed)
        ahead = await _ahead(connection, row, closed)
        estimate = await _estimate(connection, row, closed, holders, ahead, situation.limits, now)
        answer = structs.replace(
            answer,
            holders=holders[:_MOST_HOLDERS],
            holders_in_all=len(holders),
            ahead=ahead,
            ahead_or_more=ahead is not None and ahead >= MOST_COUNTED,
            estimated_start=estimate.at,
            estimate=estimate.basis,
        )
        return _said(answer, row)


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
        expires_at=row["start_by"] if _may_expire(row) else None,
        text="",
    )


def _may_expire(row: Any) -> bool:
    """Whether it has not begun: neither was it tried, nor does it run."""
    return row["state"] != "settled" and row["attempts"] == 0 and row["started_at"] is None


def _said(answer: ExplainWorkAnswer, row: Any) -> ExplainWorkAnswer:
    return structs.replace(answer, text=sentence(answer, row))


def _waiter(row: Any) -> Waiter:
    return Waiter(
        group=row["group_name"],
        job=row["job"],
        not_before=row["not_before"],
        manifest=row["manifest"],
        manifest_disabled=row["manifest_disabled"],
        key=row["concurrency_key"],
        key_limit=row["concurrency_limit"],
        key_active=row["key_active"],
        key_kept=_waits_for_key(row) and not row["key_noted"],
    )


def _waits_for_key(row: Any) -> bool:
    return bool(row["held_by"] == "key")


async def _holders(connection: Connection, row: Any, closed: GateStatus | None) -> list[SlotHolder]:
    """The runs that keep a gate closed."""
    if closed is None or closed.gate not in _HELD_BY_RUNS:
        return []
    rows = await connection.fetch(
        explanations["holders"],
        row["group_name"] if closed.gate == "group_cap" else None,
        row["job"] if closed.gate == "job_cap" else None,
        row["concurrency_key"] if closed.gate == "key" else None,
        closed.gate == "global_cap",
    )
    return [
        SlotHolder(
            run=one["run_id"],
            work=one["work_id"],
            manifest=one["manifest"],
            group=one["group_name"],
            job=one["job"],
            worker=one["worker"],
            state=one["state"],
            since=one["since"],
        )
        for one in rows
    ]


async def _ahead(connection: Connection, row: Any, closed: GateStatus | None) -> int | None:
    """How much work comes before it where it waits; none if it does not stand in a line."""
    if closed is not None and closed.gate in ("group_disabled", "manifest_disabled", "not_before"):
        return None
    if closed.gate == "key" if closed is not None else _waits_for_key(row):
        query, named = explanations["ahead_with_key"], row["concurrency_key"]
    else:
        query, named = explanations["ahead_in_group"], row["group_name"]
    ahead: int = await connection.fetchval(query, named, row["rank"], MOST_COUNTED)
    return min(ahead, MOST_COUNTED)


async def _estimate(
    connection: Connection,
    row: Any,
    closed: GateStatus | None,
    holders: list[SlotHolder],
    ahead: int | None,
    limits: Limits,
    now: datetime,
) -> _Estimate:
    if closed is None and ahead and _waits_for_key(row):
        return _Estimate(basis=f"its key has room, and {ahead} come before it")
    if closed is None:
        return _Estimate(at=now, basis="nothing is in its way: the gate admits it next")
    if closed.gate == "not_before":
        return _Estimate(at=closed.opens_at, basis="its time; what else is in its way shows then")
    if closed.gate == "rate" and ahead is not None:
        at = waiting.rate_turn(_waiter(row), limits, ahead=ahead, now=now)
        return _Estimate(at=at, basis=f"the rate, with {ahead} before it")
    if closed.gate not in _HELD_BY_RUNS or ahead is None or not holders:
        return _Estimate(basis="nobody can say when that changes")
    rows = await connection.fetch(explanations["durations"], row["job"])
    if not rows:
        return _Estimate(basis=f"no run of job {row['job']!r} has completed lately to judge by")
    typical = statistics.median(one["seconds"] for one in rows)
    at = waiting.estimate_start(
        ahead=ahead,
        running_since=[holder.since for holder in holders],
        typical=timedelta(seconds=typical),
        now=now,
    )
    basis = f"{len(rows)} recent run(s) of its job took {typical:.1f} s each, {ahead} before it"
    return _Estimate(at=at, basis=basis)
