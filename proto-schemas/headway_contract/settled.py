"""Events from the dispatcher to the scheduler and other subscribers."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, field

from headway_contract.envelope import EventData
from headway_contract.fields import Name
from headway_contract.lifecycle import Activation
from headway_contract.work import ManifestEvent, WorkEvent

# The outcomes of this version. Receivers accept any text, so that a later version may add one.
# The scheduler sets `unknown` for work that is so old that no record of it exists.
Outcome = Literal["completed", "cancelled", "dead_lettered", "coalesced", "expired", "unknown"]


class WorkSettled(WorkEvent, frozen=True, kw_only=True):
    """A round of a piece of work ended."""

    type: ClassVar[str] = "headway.work.settled.v1"
    outcome: str
    reason: str = ""
    run: UUID | None = None
    runs: int
    attempts: int
    dead_letter: UUID | None = None
    # Every activation of the round, in case their events were lost.
    activations: list[Activation] = field(default_factory=list)
    settled_at: datetime


class WorksCompleted(EventData, frozen=True, kw_only=True):
    """Rounds of work of one group completed, without activations.

    It replaces an event `headway.work.settled.v1` for each. The lists have an entry for each piece
    of work, in the same order; their names are those of the fields of that event.
    """

    type: ClassVar[str] = "headway.works.settled.v1"
    group: Name
    work: Annotated[list[UUID], Meta(min_length=1)]
    round: list[int]
    manifest_id: list[UUID | None]
    manifest: list[str | None]
    run: list[UUID]
    runs: list[int]
    attempts: list[int]
    settled_at: datetime
    # The trace of each piece of work; empty if no traces are recorded.
    traceparents: list[str | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Reject lists of different lengths."""
        columns = (*(getattr(self, name) for name in _COLUMNS), self.traceparents or self.work)
        if any(len(column) != len(self.work) for column in columns):
            raise ValueError("its lists have different lengths")

    def outcomes(self) -> Iterator[WorkSettled]:
        """Unpack it into the event of each piece of work."""
        common: dict[str, Any] = {
            "group": self.group,
            "outcome": "completed",
            "settled_at": self.settled_at,
        }
        for row in zip(*(getattr(self, name) for name in _COLUMNS), strict=True):
            yield WorkSettled(**common, **dict(zip(_COLUMNS, row, strict=True)))


_COLUMNS = ("work", "round", "manifest_id", "manifest", "run", "runs", "attempts")


class DeadLetterEvent(WorkEvent, frozen=True, kw_only=True):
    """An event of a dead letter."""

    dead_letter: UUID


class DeadLetterCreated(DeadLetterEvent, frozen=True, kw_only=True):
    """A piece of work needs attention; equal failures have an equal `fingerprint`."""

    type: ClassVar[str] = "headway.dead_letter.created.v1"
    job: Name
    reason: str
    attempts: int
    fingerprint: str = ""
    code_version: str = ""


class InputChange(Struct, frozen=True, kw_only=True):
    """A change at a JSON Pointer; an added value has no `was`, a removed one no `now`."""

    path: str
    was: Any = UNSET
    now: Any = UNSET


class DeadLetterRetried(DeadLetterEvent, frozen=True, kw_only=True):
    """The work of a dead letter runs again, in its next round and in the same slot."""

    type: ClassVar[str] = "headway.dead_letter.retried.v1"
    slot: int = 0
    actor: str = ""
    edit: list[InputChange] = field(default_factory=list)
    resolved_at: datetime


class DeadLetterAcknowledged(DeadLetterEvent, frozen=True, kw_only=True):
    """A dead letter was closed without a retry; its manifest is no longer blocked."""

    type: ClassVar[str] = "headway.dead_letter.acknowledged.v1"
    note: str = ""
    actor: str = ""
    resolved_at: datetime


class ActivationRequested(WorkEvent, frozen=True, kw_only=True):
    """A run of this work activated dormant dependents of its manifest."""

    type: ClassVar[str] = "headway.activation.requested.v1"
    run: UUID
    manifest_id: UUID
    activations: list[Activation]


class PruneConfirmed(ManifestEvent, frozen=True, kw_only=True):
    """The dispatcher has deleted everything of a pruned manifest."""

    type: ClassVar[str] = "headway.prune.confirmed.v1"
    confirmed_at: datetime
