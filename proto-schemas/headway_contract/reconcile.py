"""Reconciliation: the scheduler asks the dispatcher about everything that it waits for.

Messages may be lost with the broker's storage, so the scheduler asks from time to time. An answer
repeats earlier events, or reports that a message never arrived.
"""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from headway_contract.settled import (
    DeadLetterAcknowledged,
    DeadLetterRetried,
    PruneConfirmed,
    WorkSettled,
)

# The maximum of each kind in one question.
RECONCILE_LIMIT = 1000


class OutstandingWork(Struct, frozen=True, kw_only=True):
    """Work that the scheduler takes for unsettled, and its latest known round.

    `cancelled`: it was cancelled. `brought_forward_at`: when it was brought forward.
    """

    work: UUID
    round: Annotated[int, Meta(ge=1)] = 1
    manifest_id: UUID | None = None
    queued_at: datetime
    cancelled: bool = False
    brought_forward_at: datetime | None = None


class Version(Struct, frozen=True, kw_only=True):
    """The version in force of the settings of a `group`, a `job` or a `manifest`."""

    kind: str
    name: str
    version: int


class ReconcileQuestion(Struct, frozen=True, kw_only=True):
    """Everything that the scheduler waits for, and the `versions` of settings."""

    works: Annotated[list[OutstandingWork], Meta(max_length=RECONCILE_LIMIT)] = []
    dead_letters: Annotated[list[UUID], Meta(max_length=RECONCILE_LIMIT)] = []
    versions: Annotated[list[Version], Meta(max_length=RECONCILE_LIMIT)] = []
    prunes: Annotated[list[UUID], Meta(max_length=RECONCILE_LIMIT)] = []


class ReconcileAnswer(Struct, frozen=True, kw_only=True):
    """The dispatcher's knowledge.

    Work in no list is known and not settled, a dead letter in no list is open, a prune in no list
    is under way, and settings in no list are up to date.

    `settled`: the outcomes of work. `left`: settled work that did not fit into this answer: ask
    again. `unknown`: work that never arrived. `expired`: unknown work that is so old that it may
    have been settled and deleted. `forgotten`: dead letters that are no longer stored. `outdated`:
    settings with the older version in force. `unburied`: prunes that never arrived.
    `not_cancelled`, `not_brought_forward`: work whose request never arrived.
    """

    settled: list[WorkSettled] = []
    left: list[UUID] = []
    unknown: list[UUID] = []
    expired: list[UUID] = []
    retried: list[DeadLetterRetried] = []
    acknowledged: list[DeadLetterAcknowledged] = []
    forgotten: list[UUID] = []
    outdated: list[Version] = []
    confirmed: list[PruneConfirmed] = []
    unburied: list[UUID] = []
    not_cancelled: list[UUID] = []
    not_brought_forward: list[UUID] = []
