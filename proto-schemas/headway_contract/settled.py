"""What the dispatcher tells the scheduler, and anybody who listens."""

from datetime import datetime
from typing import Any, ClassVar, Literal
from uuid import UUID

from msgspec import UNSET, Struct, field

from headway_contract.envelope import EventData, register
from headway_contract.lifecycle import Activation
from headway_contract.work import Name

# What is told today. Receivers take any text, so that a new outcome is no rubbish to them.
# `unknown` is the scheduler's own word for work that is so old that nobody has a record of it.
Outcome = Literal["completed", "cancelled", "dead_lettered", "coalesced", "expired", "unknown"]


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
    # Every activation of the round again, in case the events that told them were lost.
    activations: list[Activation] = field(default_factory=list)
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
    # Equal for failures that are the same one, and the version of the code that failed.
    fingerprint: str = ""
    code_version: str = ""


class InputChange(Struct, frozen=True, kw_only=True):
    """One place where an edited input differs: `path` as JSON Pointer has it.

    What was not there before has no `was`, and what was taken out has no `now`.
    """

    path: str
    was: Any = UNSET
    now: Any = UNSET


class DeadLetterRetried(EventData, frozen=True, kw_only=True):
    """A dead letter's work runs again, in its next round and in the slot that it had."""

    type: ClassVar[str] = "headway.dead_letter.retried.v1"

    dead_letter: UUID
    work: UUID
    round: int
    slot: int = 0
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name
    actor: str = ""
    # How its input was edited; nothing means that it runs as it was.
    edit: list[InputChange] = field(default_factory=list)
    resolved_at: datetime


class DeadLetterAcknowledged(EventData, frozen=True, kw_only=True):
    """Somebody has seen to a dead letter; its manifest may go on."""

    type: ClassVar[str] = "headway.dead_letter.acknowledged.v1"

    dead_letter: UUID
    work: UUID
    round: int
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name
    note: str = ""
    actor: str = ""
    resolved_at: datetime


class ActivationRequested(EventData, frozen=True, kw_only=True):
    """A run of this work woke dormant dependents of its manifest."""

    type: ClassVar[str] = "headway.activation.requested.v1"

    work: UUID
    round: int
    run: UUID
    manifest_id: UUID
    manifest: str | None = None
    group: Name
    activations: list[Activation]


class PruneConfirmed(EventData, frozen=True, kw_only=True):
    """Nothing of a pruned manifest is left at the dispatcher."""

    type: ClassVar[str] = "headway.prune.confirmed.v1"

    manifest_id: UUID
    manifest: str
    group: Name
    confirmed_at: datetime


register(
    WorkSettled,
    DeadLetterCreated,
    DeadLetterRetried,
    DeadLetterAcknowledged,
    ActivationRequested,
    PruneConfirmed,
)
