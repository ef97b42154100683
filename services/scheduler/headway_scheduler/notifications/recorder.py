"""Write the noted facts of a transaction to the table of notifications, before it commits."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from headway_contract.envelope import EventData
from headway_contract.notifications import FiresMissed, ManifestBlocked, WorkDeadLettered
from headway_postgres_kit import Clock, Connection, json_array
from msgspec import Struct

from headway_scheduler.notifications.facts import Blocked, DeadLettered, Missed
from headway_scheduler.store import notifications

_NAMESPACE = UUID("6f1c6e0e-4a51-4a0e-9a35-0b4f0c7f2d11")
_KINDS = (DeadLettered, Blocked, Missed)
# A reason may quote a failure; what is longer stands in the dead letter itself.
_LONGEST_REASON = 1000


class Notification(Struct, frozen=True, kw_only=True):
    """One notification to be sent. The same fact has the same id, however often it is recorded."""

    id: UUID
    subject: str
    data: EventData


class Recorder:
    """Called by the database before each commit, with the facts that were noted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def __call__(self, connection: Connection, noted: Sequence[Any]) -> None:
        """Write a notification for each fact that people want to hear of."""
        facts = [fact for fact in noted if isinstance(fact, _KINDS)]
        if not facts:
            return
        found = [_notification(fact) for fact in facts]
        await connection.execute(
            notifications["add"],
            [one.id for one in found],
            [one.data.type for one in found],
            [one.subject for one in found],
            json_array(one.data for one in found),
            await self._clock.now(connection),
        )


def _notification(fact: DeadLettered | Blocked | Missed) -> Notification:
    match fact:
        case DeadLettered(outcome=outcome, job=job):
            letter = outcome.dead_letter
            assert letter is not None  # noqa: S101 - only outcomes with a dead letter are noted
            return Notification(
                id=uuid5(_NAMESPACE, f"dead_lettered {letter}"),
                subject=str(letter),
                data=WorkDeadLettered(
                    dead_letter=letter,
                    work=outcome.work,
                    round=outcome.round,
                    manifest=outcome.manifest,
                    group=outcome.group,
                    job=job,
                    reason=outcome.reason[:_LONGEST_REASON],
                    attempts=outcome.attempts,
                ),
            )
        case Blocked(manifest=manifest, group=group, dead_letter=letter):
            return Notification(
                id=uuid5(_NAMESPACE, f"blocked {letter}"),
                subject=manifest,
                data=ManifestBlocked(manifest=manifest, group=group, dead_letter=letter),
            )
        case Missed():
            return Notification(
                id=uuid5(_NAMESPACE, f"missed {fact.manifest_id} {fact.cause}"),
                subject=fact.manifest,
                data=FiresMissed(
                    manifest=fact.manifest,
                    group=fact.group,
                    first_due_at=fact.first_due_at,
                    last_due_at=fact.last_due_at,
                ),
            )
