"""Answer the scheduler, which asks about everything that it waits for.

An answer repeats earlier messages from the tables: outcomes of work, resolved dead letters,
confirmed prunes, outdated settings. Unknown work never arrived, or is so old that it may have been
settled and deleted.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import subjects
from headway_contract.reconcile import OutstandingWork, ReconcileAnswer, ReconcileQuestion, Version
from headway_contract.settled import (
    DeadLetterAcknowledged,
    DeadLetterRetried,
    PruneConfirmed,
    WorkSettled,
)
from headway_jetstream_kit import Broker
from headway_jetstream_kit.endpoints import serve, typed
from headway_postgres_kit import Clock, Connection, Database
from headway_tracing import span
from msgspec import Struct

from headway_dispatcher import store
from headway_dispatcher.outbound_events import (
    prune_confirmation,
    settled_without_run,
    work_settled,
)
from headway_dispatcher.runs.settle import PRUNED
from headway_dispatcher.store import heals

# Size of the outcomes in an answer; the scheduler asks again for the rest.
_OUTCOMES_LIMIT = 640 * 1024

_VERSION_QUERIES = {
    "group": heals["group_versions"],
    "job": heals["job_versions"],
    "manifest": heals["switch_versions"],
}


class _Works(Struct):
    """The part of an answer about work."""

    settled: list[WorkSettled]
    unknown: list[UUID]
    expired: list[UUID]
    not_cancelled: list[UUID]
    # Waiting work, with the time of the request to bring it forward.
    to_bring_forward: dict[UUID, datetime]


class ReconcileDesk:
    """Answers the scheduler, for one dispatcher process."""

    def __init__(self, database: Database, broker: Broker, *, clock: Clock, days: float) -> None:
        self._database = database
        self._broker = broker
        self._clock = clock
        self._kept = timedelta(days=days)

    async def listen(self) -> None:
        """Share the questions with the other dispatchers."""
        await serve(
            self._broker,
            service="headway-dispatcher-healing",
            queue=subjects.DISPATCHERS,
            endpoints={subjects.RECONCILE_QUESTION: typed(ReconcileQuestion, self.answer)},
        )

    async def answer(self, question: ReconcileQuestion) -> ReconcileAnswer:
        """Answer from one snapshot; it changes nothing."""
        with span("reconcile", works=len(question.works)):
            async with (
                self._database.acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                now = await self._clock.now(connection)
                work = await self._works(connection, question.works, now)
                not_brought_forward = await _not_brought_forward(connection, work.to_bring_forward)
                retried, acknowledged, forgotten = await _letters(connection, question.dead_letters)
                outdated = await _outdated(connection, question.versions)
                confirmed, without_tombstone = await _prunes(connection, question.prunes)
        settled, left = _within_limit(work.settled)
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
            unburied=without_tombstone,
        )

    async def _works(
        self, connection: Connection, questions: Sequence[OutstandingWork], now: datetime
    ) -> _Works:
        found = _Works([], [], [], [], {})
        if not questions:
            return found
        rows = await connection.fetch(heals["outcomes"], [each.work for each in questions])
        known = {row["id"]: row for row in rows}
        reasons = await _reasons(connection, rows)
        pruned = await store.pruned_manifests(
            connection, [each.manifest_id for each in questions if each.work not in known]
        )
        for question in questions:
            row = known.get(question.work)
            if row is None and question.manifest_id in pruned:
                found.settled.append(settled_without_run(question, "cancelled", PRUNED, now))
            elif row is None:
                # A later round began here, so its work was known once.
                old = question.round > 1 or question.queued_at < now - self._kept
                (found.expired if old else found.unknown).append(question.work)
            elif row["state"] != "settled":
                _find_lost_requests(question, row, found)
            elif row["round"] >= question.round:
                found.settled.append(_outcome(row, reasons.get(row["id"], "")))
            else:
                found.expired.append(question.work)
        return found


async def _reasons(connection: Connection, rows: Sequence[Any]) -> dict[UUID, str]:
    """Read the reasons of outcomes, from the row or else from history."""
    reasons = {row["id"]: row["letter_reason"] or row["cancel_reason"] or "" for row in rows}
    rounds = {
        row["id"]: row["round"]
        for row in rows
        if row["state"] == "settled" and row["outcome"] != "completed" and not reasons[row["id"]]
    }
    if rounds:
        ends = await connection.fetch(heals["reasons"], list(rounds))
        reasons |= {
            end["work_id"]: end["reason"] or ""
            for end in ends
            if end["round"] == rounds[end["work_id"]]
        }
    return reasons


def _find_lost_requests(question: OutstandingWork, row: Any, found: _Works) -> None:
    """Note requests about unsettled work that never arrived; a later round was not meant."""
    if row["round"] > question.round:
        return
    if question.cancelled and row["cancel_requested_at"] is None:
        found.not_cancelled.append(question.work)
    if question.brought_forward_at is not None and row["state"] != "dispatched":
        found.to_bring_forward[question.work] = question.brought_forward_at


async def _not_brought_forward(
    connection: Connection, requested: Mapping[UUID, datetime]
) -> list[UUID]:
    if not requested:
        return []
    rows = await connection.fetch(
        heals["not_brought_forward"], list(requested), list(requested.values())
    )
    return [row["id"] for row in rows]


async def _letters(
    connection: Connection, ids: Sequence[UUID]
) -> tuple[list[DeadLetterRetried], list[DeadLetterAcknowledged], list[UUID]]:
    if not ids:
        return [], [], []
    rows = await connection.fetch(heals["letters"], list(ids))
    retried = [_retried(row) for row in rows if row["state"] == "retried"]
    acknowledged = [_acknowledged(row) for row in rows if row["state"] == "acknowledged"]
    known = {row["id"] for row in rows}
    return retried, acknowledged, [letter for letter in ids if letter not in known]


async def _outdated(connection: Connection, known: Sequence[Version]) -> list[Version]:
    """Return settings whose version here is older; unknown kinds are ignored."""
    outdated: list[Version] = []
    for kind, query in _VERSION_QUERIES.items():
        wanted = {each.name: each.version for each in known if each.kind == kind}
        rows = await connection.fetch(query, list(wanted)) if wanted else []
        in_force = {row["name"]: row["version"] for row in rows}
        outdated += [
            Version(kind=kind, name=name, version=in_force.get(name, 0))
            for name, version in wanted.items()
            if in_force.get(name, 0) < version
        ]
    return outdated


async def _prunes(
    connection: Connection, manifests: Sequence[UUID]
) -> tuple[list[PruneConfirmed], list[UUID]]:
    if not manifests:
        return [], []
    rows = await connection.fetch(heals["tombstones"], list(manifests))
    known = {row["manifest_id"] for row in rows}
    confirmed = [prune_confirmation(row) for row in rows if row["confirmed_at"] is not None]
    return confirmed, [manifest for manifest in manifests if manifest not in known]


def _within_limit(settled: Sequence[WorkSettled]) -> tuple[list[WorkSettled], list[UUID]]:
    """Return as many outcomes as an answer holds, at least one, and the work of the rest."""
    kept: list[WorkSettled] = []
    left: list[UUID] = []
    room = _OUTCOMES_LIMIT
    for outcome in settled:
        room -= len(msgspec.json.encode(outcome))
        if kept and room < 0:
            left.append(outcome.work)
        else:
            kept.append(outcome)
    return kept, left


def _outcome(row: Any, reason: str) -> WorkSettled:
    return work_settled(
        row,
        outcome=row["outcome"],
        reason=reason,
        attempts=row["attempts"],
        dead_letter=row["letter"],
        settled_at=row["settled_at"],
    )


def _retried(row: Any) -> DeadLetterRetried:
    return DeadLetterRetried(**_resolution(row), round=row["round"] + 1, slot=row["slot"])


def _acknowledged(row: Any) -> DeadLetterAcknowledged:
    return DeadLetterAcknowledged(**_resolution(row), round=row["round"])


def _resolution(row: Any) -> dict[str, Any]:
    return {
        "dead_letter": row["id"],
        "work": row["work_id"],
        "manifest_id": row["manifest_id"],
        "manifest": row["manifest"],
        "group": row["group_name"],
        "actor": row["actor"] or "",
        "resolved_at": row["resolved_at"],
    }
