"""Answer the scheduler, which asks about everything that it waits for.

An answer repeats earlier messages from the tables: outcomes of work, resolved dead letters,
confirmed prunes, outdated settings. Unknown work never arrived, or is so old that it may have been
settled and deleted.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_contract.reconcile import OutstandingWork, ReconcileAnswer, ReconcileQuestion, Version
from headway_contract.settled import (
    DeadLetterAcknowledged,
    DeadLetterRetried,
    PruneConfirmed,
    WorkSettled,
)
from headway_postgres_kit import Connection, Database
from headway_tracing import span

from headway_dispatcher import store
from headway_dispatcher.events import settled_without_run, work_settled
from headway_dispatcher.runs.settle import PRUNED
from headway_dispatcher.store import heals

# Size of the outcomes in an answer; the scheduler asks again for the rest.
_OUTCOMES_LIMIT = 640 * 1024

_VERSION_QUERIES = {
    "group": heals["group_versions"],
    "job": heals["job_versions"],
    "manifest": heals["switch_versions"],
}


async def answer(database: Database, days: float, question: ReconcileQuestion) -> ReconcileAnswer:
    """Answer from one snapshot; settled work is kept for `days`."""
    # Each part fills in its fields.
    found = ReconcileAnswer()
    with span("reconcile", works=len(question.works)):
        async with database.snapshot() as connection:
            now = await database.clock.now(connection)
            oldest = now - timedelta(days=days)
            settled = await _find_works(connection, question.works, found, now, oldest)
            await _find_letters(connection, question.dead_letters, found)
            await _find_outdated(connection, question.versions, found)
            await _find_prunes(connection, question.prunes, found)
    # As many outcomes as an answer holds, at least one.
    room = _OUTCOMES_LIMIT
    for outcome in settled:
        room -= len(msgspec.json.encode(outcome))
        if found.settled and room < 0:
            found.left.append(outcome.work)
        else:
            found.settled.append(outcome)
    return found


async def _find_works(
    connection: Connection,
    questions: Sequence[OutstandingWork],
    found: ReconcileAnswer,
    now: datetime,
    oldest: datetime,
) -> list[WorkSettled]:
    """Find unknown work and lost requests; returns the outcomes of settled work."""
    if not questions:
        return []
    rows = await connection.fetch(heals["outcomes"], [each.work for each in questions])
    known = {row["id"]: row for row in rows}
    reasons = await _reasons(connection, rows)
    pruned = await store.pruned_manifests(
        connection, [each.manifest_id for each in questions if each.work not in known]
    )
    settled: list[WorkSettled] = []
    unsettled: list[OutstandingWork] = []
    for question in questions:
        row = known.get(question.work)
        if row is None and question.manifest_id in pruned:
            settled.append(settled_without_run(question, "cancelled", PRUNED, now))
        elif row is None:
            # A later round began here, so its work was known once.
            old = question.round > 1 or question.queued_at < oldest
            (found.expired if old else found.unknown).append(question.work)
        elif row["state"] != "settled":
            # Requests did not mean a later round.
            if row["round"] <= question.round:
                unsettled.append(question)
        elif row["round"] >= question.round:
            settled.append(_outcome(row, reasons.get(row["id"], "")))
        else:
            found.expired.append(question.work)
    found.not_cancelled.extend(
        question.work
        for question in unsettled
        if question.cancelled and known[question.work]["cancel_requested_at"] is None
    )
    forward = {
        question.work: question.brought_forward_at
        for question in unsettled
        if question.brought_forward_at and known[question.work]["state"] != "dispatched"
    }
    if forward:
        query = heals["not_brought_forward"]
        rows = await connection.fetch(query, list(forward), list(forward.values()))
        found.not_brought_forward.extend(row["id"] for row in rows)
    return settled


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


def _outcome(row: Any, reason: str) -> WorkSettled:
    return work_settled(
        row,
        outcome=row["outcome"],
        reason=reason,
        attempts=row["attempts"],
        dead_letter=row["letter"],
        settled_at=row["settled_at"],
    )


async def _find_letters(
    connection: Connection, ids: Sequence[UUID], found: ReconcileAnswer
) -> None:
    """Find resolved and deleted dead letters."""
    if not ids:
        return
    rows = [dict(row) for row in await connection.fetch(heals["letters"], list(ids))]
    for row in rows:
        if row["state"] == "retried":
            found.retried.append(msgspec.convert(row, DeadLetterRetried))
        elif row["state"] == "acknowledged":
            found.acknowledged.append(msgspec.convert(row, DeadLetterAcknowledged))
    known = {row["dead_letter"] for row in rows}
    found.forgotten.extend(letter for letter in ids if letter not in known)


async def _find_outdated(
    connection: Connection, known: Sequence[Version], found: ReconcileAnswer
) -> None:
    """Find settings whose version here is older; unknown kinds are ignored."""
    for kind, query in _VERSION_QUERIES.items():
        wanted = {each.name: each.version for each in known if each.kind == kind}
        rows = await connection.fetch(query, list(wanted)) if wanted else []
        in_force = {row["name"]: row["version"] for row in rows}
        found.outdated.extend(
            Version(kind=kind, name=name, version=in_force.get(name, 0))
            for name, version in wanted.items()
            if in_force.get(name, 0) < version
        )


async def _find_prunes(
    connection: Connection, manifests: Sequence[UUID], found: ReconcileAnswer
) -> None:
    """Find confirmed prunes, and prunes without a tombstone."""
    if not manifests:
        return
    rows = [dict(row) for row in await connection.fetch(heals["tombstones"], list(manifests))]
    confirmed = [row for row in rows if row["confirmed_at"] is not None]
    found.confirmed.extend(msgspec.convert(confirmed, list[PruneConfirmed]))
    known = {row["manifest_id"] for row in rows}
    found.unburied.extend(manifest for manifest in manifests if manifest not in known)
