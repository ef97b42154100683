"""Anti-entropy: what the scheduler asks the dispatcher again, and what it hears.

Messages may be lost with the broker's store, whole or in part. So the scheduler asks, now
and then, about everything that it waits for. Nothing here is new: an answer repeats what
was told before, or says that something was never heard of.
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

# How much of each kind one question may ask about.
MOST_ASKED = 1000


class AskedWork(Struct, frozen=True, kw_only=True):
    """A piece of work that the asker takes for unsettled, and the round that it knows of.

    `cancelled` says that its end was asked for, `brought_forward_at` when it was asked to come
    first.
    """

    work: UUID
    round: Annotated[int, Meta(ge=1)] = 1
    manifest_id: UUID | None = None
    queued_at: datetime
    cancelled: bool = False
    brought_forward_at: datetime | None = None


class Version(Struct, frozen=True, kw_only=True):
    """Which version of somebody's settings is in force: a `group`'s, a `job`'s, a `manifest`'s."""

    kind: str
    name: str
    version: int


class ReconcileQuestion(Struct, frozen=True, kw_only=True):
    """What the scheduler waits for: ends of work, resolutions of dead letters, prunes.

    `versions` are those of the settings that the dispatcher should know.
    """

    works: Annotated[list[AskedWork], Meta(max_length=MOST_ASKED)] = []
    dead_letters: Annotated[list[UUID], Meta(max_length=MOST_ASKED)] = []
    versions: Annotated[list[Version], Meta(max_length=MOST_ASKED)] = []
    prunes: Annotated[list[UUID], Meta(max_length=MOST_ASKED)] = []


class ReconcileAnswer(Struct, frozen=True, kw_only=True):
    """What the dispatcher knows of it.

    Work that is in none of the lists is known and under way, a dead letter in none of them
    waits for a person, a prune in none of them goes on, settings in none are up to date.

    `settled`: how work ended. `left`: work that is settled as well, for which this answer has
    no room: ask again. `unknown`: work that never came. `expired`: work that is not known, and
    so old that it may have been settled and forgotten. `forgotten`: dead letters that are no
    longer kept. `outdated`: settings with the older version that is in force. `unburied`:
    prunes that never came. `not_cancelled`, `not_brought_forward`: work that is under way, or
    waits, although it was asked to end, or to come first: that request never came.
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
