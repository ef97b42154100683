"""Reconciliation: the scheduler periodically asks the dispatcher for everything that it waits for.

Messages may be lost with the broker's storage. An answer repeats earlier events, or reports that
a message never arrived.
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
    """Work that is not settled according to the scheduler, in its latest known round."""

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
    """Everything that the scheduler waits for, and the versions of settings."""

    works: Annotated[list[OutstandingWork], Meta(max_length=RECONCILE_LIMIT)] = []
    dead_letters: Annotated[list[UUID], Meta(max_length=RECONCILE_LIMIT)] = []
    versions: Annotated[list[Version], Meta(max_length=RECONCILE_LIMIT)] = []
    prunes: Annotated[list[UUID], Meta(max_length=RECONCILE_LIMIT)] = []


class ReconcileAnswer(Struct, frozen=True, kw_only=True):
    """The differences; anything in no list is still open, and settings in no list are current."""

    settled: list[WorkSettled] = []
    left: list[UUID] = []  # settled, but did not fit into this answer
    unknown: list[UUID] = []  # never arrived
    expired: list[UUID] = []  # unknown, and so old that it may have been settled and deleted
    retried: list[DeadLetterRetried] = []
    acknowledged: list[DeadLetterAcknowledged] = []
    forgotten: list[UUID] = []  # dead letters that are no longer stored
    outdated: list[Version] = []  # with the older version in force
    confirmed: list[PruneConfirmed] = []
    unburied: list[UUID] = []  # prunes that never arrived
    not_cancelled: list[UUID] = []  # the cancel request never arrived
    not_brought_forward: list[UUID] = []
