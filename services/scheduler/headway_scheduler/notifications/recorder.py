"""Facts that make notifications: transactions note them, and write them just before the commit."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from headway_contract.envelope import EventData
from headway_contract.notifications import FiresMissed, ManifestBlocked, WorkDeadLettered
from headway_contract.settled import WorkSettled
from headway_postgres_kit import Connection, Database, json_array
from msgspec import Struct

from headway_scheduler.store import notifications

_NAMESPACE = UUID("6f1c6e0e-4a51-4a0e-9a35-0b4f0c7f2d11")
# A reason may quote a failure; the dead letter has all of it.
_LONGEST_REASON = 1000


class DeadLettered(Struct, frozen=True, kw_only=True):
    """Work was settled with a dead letter; its job is `None` if it is unknown."""

    outcome: WorkSettled
    job: str | None


class Blocked(Struct, frozen=True, kw_only=True):
    """A dead letter blocks a manifest that was not blocked before."""

    manifest: str
    group: str
    dead_letter: UUID


class Missed(Struct, frozen=True, kw_only=True):
    """Due times passed without a decision in time and will not fire."""

    manifest_id: UUID
    cause: str
    manifest: str
    group: str
    first_due_at: datetime
    last_due_at: datetime


class Recorder:
    """Called by the database before each commit, with the noted facts."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self, connection: Connection, noted: Sequence[Any]) -> None:
        """Write a notification for each fact; a repeated fact has the same id."""
        found = [
            _notification(fact)
            for fact in noted
            if isinstance(fact, DeadLettered | Blocked | Missed)
        ]
        if found:
            await connection.execute(
                notifications["add"],
                [uuid5(_NAMESPACE, identity) for identity, _, _ in found],
                [data.type for _, _, data in found],
                [subject for _, subject, _ in found],
                json_array(data for _, _, data in found),
                await self._database.clock.now(connection),
            )


def _notification(fact: DeadLettered | Blocked | Missed) -> tuple[str, str, EventData]:
    """Return the identity, the subject and the data of a notification."""
    match fact:
        case DeadLettered(outcome=outcome, job=job):
            letter = outcome.dead_letter
            assert letter is not None  # noqa: S101 - only outcomes with a dead letter are noted
            dead_lettered = WorkDeadLettered(
                dead_letter=letter,
                work=outcome.work,
                round=outcome.round,
                manifest=outcome.manifest,
                group=outcome.group,
                job=job,
                reason=outcome.reason[:_LONGEST_REASON],
                attempts=outcome.attempts,
            )
            return f"dead_lettered {letter}", str(letter), dead_lettered
        case Blocked(manifest=manifest, group=group, dead_letter=letter):
            blocked = ManifestBlocked(manifest=manifest, group=group, dead_letter=letter)
            return f"blocked {letter}", manifest, blocked
        case Missed():
            missed = FiresMissed(
                manifest=fact.manifest,
                group=fact.group,
                first_due_at=fact.first_due_at,
                last_due_at=fact.last_due_at,
            )
            return f"missed {fact.manifest_id} {fact.cause}", fact.manifest, missed
