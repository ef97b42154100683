"""What workers tell the dispatcher about a lease and its runs.

Every event here is published fenced: with the sequence of the publisher's previous
message of the lease, so that the broker refuses it once somebody else has spoken.
The dispatcher publishes the same types under its own worker token when it takes a
lease away.
"""

from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from headway_contract.envelope import EventData, register


class LeaseEvent(EventData, frozen=True, kw_only=True):
    """What every lifecycle event says: which lease, by what right, from which process."""

    type: ClassVar[str] = ""

    lease: UUID
    token: str
    nonce: str


class LeaseClaimed(LeaseEvent, frozen=True, kw_only=True):
    """A worker took the lease; the broker lets exactly one of these through."""

    type: ClassVar[str] = "headway.lease.claimed.v1"

    host: str = ""


class LeaseRenewed(LeaseEvent, frozen=True, kw_only=True):
    """The lease is still held; keeps a long lease's last message from expiring."""

    type: ClassVar[str] = "headway.lease.renewed.v1"


class LeaseRevoked(LeaseEvent, frozen=True, kw_only=True):
    """The dispatcher took the lease away; its unfinished runs end in the same message."""

    type: ClassVar[str] = "headway.lease.revoked.v1"

    reason: str


class RunEvent(LeaseEvent, frozen=True, kw_only=True):
    """A lifecycle event of one run."""

    type: ClassVar[str] = ""

    run: UUID


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """The job's body begins."""

    type: ClassVar[str] = "headway.run.started.v1"


class RunCompleted(RunEvent, frozen=True, kw_only=True):
    """The job's body returned."""

    type: ClassVar[str] = "headway.run.completed.v1"

    output: Any = None


class Failure(Struct, frozen=True, kw_only=True):
    """Why a run failed. `kind` is the exception's name, or one of ours.

    `kinds` are the more general kinds that it also is, such as the base classes of the
    exception: whoever retries on one of them means this failure, too.
    """

    kind: str
    message: str = ""
    stack: str = ""
    retryable: bool = True
    kinds: list[str] = []


class RunFailed(RunEvent, frozen=True, kw_only=True):
    """The job's body raised, or the run ended without its doing."""

    type: ClassVar[str] = "headway.run.failed.v1"

    failure: Failure


class RunCancelled(RunEvent, frozen=True, kw_only=True):
    """The job's body stopped because it was asked to."""

    type: ClassVar[str] = "headway.run.cancelled.v1"

    reason: str = ""


class Activation(Struct, frozen=True, kw_only=True):
    """A dormant dependent that a run wakes, with the input that it gets.

    `key` tells several activations of one dependent by the same work apart; an attempt that
    is made again and says the same key again activates nothing anew.
    """

    manifest: str
    key: str = ""
    input: Any = None


class RunActivated(RunEvent, frozen=True, kw_only=True):
    """The job's body woke dormant dependents; all of them count, or none."""

    type: ClassVar[str] = "headway.run.activated.v1"

    activations: Annotated[list[Activation], Meta(min_length=1)]


# Failure kinds that are not the job's doing: a run, but not a counted attempt.
WORKER_STOPPED = "worker_stopped"
UNDELIVERED = "undelivered"
LOST_CONTACT = "lost_contact"
# Taken back with the others of its lease: because of one of them, or because their worker
# fell silent before this one began.
RECALLED = "recalled"
UNBEGUN = "unbegun"
# A counted attempt: the worker fell silent, maybe because of the job.
ORPHANED = "orphaned"
TIMED_OUT = "timed_out"
# The dispatcher's own conclusions. From a worker they are refused.
DISPATCHER_KINDS = frozenset({UNDELIVERED, RECALLED, UNBEGUN, ORPHANED})

register(
    LeaseClaimed,
    LeaseRenewed,
    LeaseRevoked,
    RunStarted,
    RunActivated,
    RunCompleted,
    RunFailed,
    RunCancelled,
)
