"""Answers to the scheduler, which asks about everything that it waits for.

An answer repeats what was told before, from the tables: how work ended, what became of dead
letters and prunes, which settings are out of date. Work that is not known never came, or is
so old that it may have been settled and forgotten.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import subjects
from headway_contract.healing import AskedWork, ReconcileAnswer, ReconcileQuestion, Version
from headway_contract.lifecycle import Activation
from headway_contract.settled import (
    DeadLetterAcknowledged,
    DeadLetterRetried,
    PruneConfirmed,
    WorkSettled,
)
from headway_decisions.runs.folding import unite
from headway_jetstream_kit import Broker
from headway_jetstream_kit.endpoints import serve, typed
from headway_postgres_kit import Clock, Connection, Database
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher.intake import prune
from headway_dispatcher.outbound_events import fitting
from headway_dispatcher.runs import settle
from headway_dispatcher.store import heals

# How much of an answer outcomes may take up; what does not fit is asked for again.
_ROOM = 640 * 1024

# Whose settings have versions, and which of them are in force.
_IN_FORCE = {
    "group": heals["group_versions"],
    "job": heals["job_versions"],
    "manifest": heals["switch_versions"],
}


class _OfWork(Struct):
    """What an answer says of work, as it is gathered."""

    settled: list[WorkSettled]
    unknown: list[UUID]
    expired: list[UUID]
    not_cancelled: list[UUID]
    # Work that waits, and when it was asked to come first.
    to_come_first: dict[UUID, datetime]


class ReconcileDesk:
    """Answers for one dispatcher process."""

    def __init__(self, database: Database, broker: Broker, *, clock: Clock, days: float) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock
        self._kept = timedelta(days=days)

    async def listen(self) -> None:
        """Share the questions with all other dispatchers."""
        await serve(
            self._broker,
            service="headway-dispatcher-healing",
            queue=subjects.DISPATCHERS,
            endpoints={subjects.RECONCILE_QUESTION: typed(ReconcileQuestion, self.answer)},
        )

    async def answer(self, question: ReconcileQuestion) -> ReconcileAnswer:
        """What is known of all that was asked about; nothing is changed by it."""
        with span("reconcile", works=len(question.works)):
            async with (
                self._database.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                now = await self._clock.now(connection)
                work = await self._of_work(connection, question.works, now)
                not_brought_forward = await _not_brought_forward(connection, work.to_come_first)
                retried, acknowledged, forgotten = await _of_letters(
                    connection, question.dead_letters
                )
                outdated = await _of_versions(connection, question.versions)
                confirmed, unburied = await _of_prunes(connection, question.prunes)
        settled, left = _with_room(work.settled)
        return ReconcileAnswer(
            settled=settled,
            left=left,
            unknown=work.unknown,
            expired=work.expired,
            not_cancelled=work.not_cancelled,
            not_brought_forward=not_brought_forward,
            retried=retried,
            acknowledged=acknowledged,
            forgotten=forgotten,
            outdated=outdated,
            confirmed=confirmed,
            unburied=unburied,
        )

    async def _of_work(
        self, connection: Connection, asked: Sequence[AskedWork], now: datetime
    ) -> _OfWork:
        found = _OfWork([], [], [], [], {})
        if not asked:
            return found
        rows = await connection.fetch(heals["outcomes"], [one.work for one in asked])
        known = {row["id"]: row for row in rows}
        reasons = await _reasons(connection, rows)
        buried = await prune.buried(
            connection, [one.manifest_id for one in asked if one.work not in known]
        )
        for one in asked:
            row = known.get(one.work)
            if row is None and one.manifest_id in buried:
                found.settled.append(_pruned(one, now))
            elif row is None:
                # A later round was begun here, so what is not known of it was known once.
                old = one.round > 1 or one.queued_at < now - self._kept
                (found.expired if old else found.unknown).append(one.work)
            elif row["state"] != "settled":
                _unheard(one, row, found)
            elif row["round"] >= one.round:
                found.settled.append(_outcome(row, reasons.get(row["id"], "")))
            else:
                found.expired.append(one.work)
        return found


async def _reasons(connection: Connection, rows: Sequence[Any]) -> dict[UUID, str]:
    """Why work ended as it did; what is not in its own row, history tells while it is kept."""
    told = {row["id"]: row["letter_reason"] or row["cancel_reason"] or "" for row in rows}
    rounds = {
        row["id"]: row["round"]
        for row in rows
        if row["state"] == "settled" and row["outcome"] != "completed" and not told[row["id"]]
    }
    if rounds:
        ends = await connection.fetch(heals["reasons"], list(rounds))
        told |= {
            end["work_id"]: end["reason"] or ""
            for end in ends
            if end["round"] == rounds[end["work_id"]]
        }
    return told


def _unheard(asked: AskedWork, row: Any, found: _OfWork) -> None:
    """What was asked of work that is under way; a later round was not meant."""
    if row["round"] > asked.round:
        return
    if asked.cancelled and row["cancel_requested_at"] is None:
        found.not_cancelled.append(asked.work)
    if asked.brought_forward_at is not None and row["state"] != "dispatched":
        found.to_come_first[asked.work] = asked.brought_forward_at


async def _not_brought_forward(
    connection: Connection, asked: Mapping[UUID, datetime]
) -> list[UUID]:
    if not asked:
        return []
    rows = await connection.fetch(heals["not_brought_forward"], list(asked), list(asked.values()))
    return [row["id"] for row in rows]


async def _of_letters(
    connection: Connection, asked: Sequence[UUID]
) -> tuple[list[DeadLetterRetried], list[DeadLetterAcknowledged], list[UUID]]:
    if not asked:
        return [], [], []
    rows = await connection.fetch(heals["letters"], list(asked))
    retried = [_retried(row) for row in rows if row["state"] == "retried"]
    acknowledged = [_acknowledged(row) for row in rows if row["state"] == "acknowledged"]
    known = {row["id"] for row in rows}
    return retried, acknowledged, [letter for letter in asked if letter not in known]


async def _of_versions(connection: Connection, asked: Sequence[Version]) -> list[Version]:
    """Settings of kinds that are not known here are nobody's business here."""
    outdated: list[Version] = []
    for kind, query in _IN_FORCE.items():
        wanted = {one.name: one.version for one in asked if one.kind == kind}
        rows = await connection.fetch(query, list(wanted)) if wanted else []
        in_force = {row["name"]: row["version"] for row in rows}
        outdated += [
            Version(kind=kind, name=name, version=in_force.get(name, 0))
            for name, version in wanted.items()
            if in_force.get(name, 0) < version
        ]
    return outdated


async def _of_prunes(
    connection: Connection, asked: Sequence[UUID]
) -> tuple[list[PruneConfirmed], list[UUID]]:
    if not asked:
        return [], []
    rows = await connection.fetch(heals["tombstones"], list(asked))
    known = {row["manifest_id"] for row in rows}
    confirmed = [prune.confirmation(row) for row in rows if row["confirmed_at"] is not None]
    return confirmed, [manifest for manifest in asked if manifest not in known]


def _with_room(settled: Sequence[WorkSettled]) -> tuple[list[WorkSettled], list[UUID]]:
    """As many outcomes as an answer takes, but at least one; and the work of the others."""
    told: list[WorkSettled] = []
    left: list[UUID] = []
    room = _ROOM
    for one in settled:
        room -= len(msgspec.json.encode(one))
        if told and room < 0:
            left.append(one.work)
        else:
            told.append(one)
    return told, left


def _outcome(row: Any, reason: str) -> WorkSettled:
    by_run = msgspec.convert(row["activations"] or [], list[list[Activation]])
    return WorkSettled(
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        outcome=row["outcome"],
        reason=reason,
        run=row["run_id"],
        runs=row["runs"],
        attempts=row["attempts"],
        dead_letter=row["letter"],
        activations=fitting(unite(activation for run in by_run for activation in run)),
        settled_at=row["settled_at"],
    )


def _pruned(asked: AskedWork, now: datetime) -> WorkSettled:
    """Work of a manifest that is gone, and that is gone with it or never came."""
    return WorkSettled(
        work=asked.work,
        round=asked.round,
        manifest_id=asked.manifest_id,
        group="pruned",
        outcome="cancelled",
        reason=settle.PRUNED,
        runs=0,
        attempts=0,
        settled_at=now,
    )


def _retried(row: Any) -> DeadLetterRetried:
    return DeadLetterRetried(
        dead_letter=row["id"],
        work=row["work_id"],
        round=row["round"] + 1,
        slot=row["slot"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        actor=row["actor"] or "",
        resolved_at=row["resolved_at"],
    )


def _acknowledged(row: Any) -> DeadLetterAcknowledged:
    return DeadLetterAcknowledged(
        dead_letter=row["id"],
        work=row["work_id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        actor=row["actor"] or "",
        resolved_at=row["resolved_at"],
    )
