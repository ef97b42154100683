"""What the dispatcher tells the scheduler, and anybody who listens."""

from datetime import datetime
from typing import ClassVar, Literal
from uuid import UUID

from headway_contract.envelope import EventData, register
from headway_contract.work import Name

# What is told today. Receivers take any text, so that a new outcome is no rubbish to them.
Outcome = Literal["completed", "cancelled", "dead_lettered", "coalesced", "expired"]


class WorkSettled(EventData, frozen=True, kw_only=True):
    """A round of a piece of work came to its end."""

    type: ClassVar[str] = "headway.work.settled.v1"

    work: UUID
    round: int
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name
    outcome: str
    reason: str = ""
    run: UUID | None = None
    runs: int
    attempts: int
    dead_letter: UUID | None = None
    settled_at: datetime


class DeadLetterCreated(EventData, frozen=True, kw_only=True):
    """A piece of work needs a person."""

    type: ClassVar[str] = "headway.dead_letter.created.v1"

    dead_letter: UUID
    work: UUID
    round: int
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name
    job: Name
    reason: str
    attempts: int


register(WorkSettled, DeadLetterCreated)
