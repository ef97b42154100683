"""Events of a lease and its runs, from workers to the dispatcher.

A fence protects every event: it names the last sequence of the lease that the publisher knows, so
that the broker refuses the event after a message of another publisher. The dispatcher publishes the
same types under its own worker token when it revokes a lease.
"""

from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from headway_contract.envelope import EventData


class LeaseEvent(EventData, frozen=True, kw_only=True):
    """The fields of every lifecycle event: the lease, its token, and the sending process."""

    lease: UUID
    token: str
    nonce: str


class LeaseClaimed(LeaseEvent, frozen=True, kw_only=True):
    """A worker took the lease; the broker accepts exactly one of these."""

    type: ClassVar[str] = "headway.lease.claimed.v1"
    host: str = ""


class LeaseRenewed(LeaseEvent, frozen=True, kw_only=True):
    """The worker still holds the lease; published so that its last message does not expire."""

    type: ClassVar[str] = "headway.lease.renewed.v1"


class LeaseRevoked(LeaseEvent, frozen=True, kw_only=True):
    """The dispatcher took the lease away; its unfinished runs end in the same message."""

    type: ClassVar[str] = "headway.lease.revoked.v1"
    reason: str


class RunEvent(LeaseEvent, frozen=True, kw_only=True):
    """A lifecycle event of one run."""

    run: UUID


class RunStarted(RunEvent, frozen=True, kw_only=True):
    """The job's body begins."""

    type: ClassVar[str] = "headway.run.started.v1"


class Activation(Struct, frozen=True, kw_only=True):
    """A dormant dependent that a run activates, once for each `key` of the same work."""

    manifest: str
    key: str = ""
    input: Any = None


class RunActivated(RunEvent, frozen=True, kw_only=True):
    """The job's body activated dormant dependents; all of them count, or none."""

    type: ClassVar[str] = "headway.run.activated.v1"
    activations: Annotated[list[Activation], Meta(min_length=1)]


class RunCompleted(RunEvent, frozen=True, kw_only=True):
    """The job's body returned."""

    type: ClassVar[str] = "headway.run.completed.v1"
    output: Any = None
    # The duration of the body; without it, the time from `run.started` to this event counts.
    seconds: Annotated[float, Meta(ge=0)] | None = None


class CompletedRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A run whose body returned, with its start and its duration by the worker's clock."""

    run: UUID
    started_at: Annotated[datetime, Meta(tz=True)]
    seconds: Annotated[float, Meta(ge=0)]
    output: Any = None
    traceparent: str | None = None


class RunsCompleted(LeaseEvent, frozen=True, kw_only=True):
    """Bodies of several runs of the lease returned; their starts need no events of their own."""

    type: ClassVar[str] = "headway.runs.completed.v1"
    runs: Annotated[list[CompletedRun], Meta(min_length=1)]


class Failure(Struct, frozen=True, kw_only=True):
    """The failure of a run; retry policies match its `kind` and its more general `kinds`."""

    kind: str
    message: str = ""
    stack: str = ""
    retryable: bool = True
    kinds: list[str] = []

    @property
    def summary(self) -> str:
        """The kind and the first line of the message."""
        first, *_ = self.message.strip().splitlines() or [""]
        return f"{self.kind}: {first}"


class RunFailed(RunEvent, frozen=True, kw_only=True):
    """The job's body raised, or the run ended for another reason."""

    type: ClassVar[str] = "headway.run.failed.v1"
    failure: Failure


class RunCancelled(RunEvent, frozen=True, kw_only=True):
    """The job's body stopped because it was cancelled."""

    type: ClassVar[str] = "headway.run.cancelled.v1"
    reason: str = ""


# Failure kinds that the job did not cause: a run, but not a counted attempt.
WORKER_STOPPED = "worker_stopped"
UNDELIVERED = "undelivered"
LOST_CONTACT = "lost_contact"
# Runs before it in the lease took longer than expected; it runs again in a lease of its own.
HANDED_BACK = "handed_back"
# Ended with the others of its lease: because of one of them, or because the worker was lost
# before this one began.
RECALLED = "recalled"
UNBEGUN = "unbegun"
# A counted attempt: the worker was lost, maybe because of the job.
ORPHANED = "orphaned"
TIMED_OUT = "timed_out"
# Kinds that only the dispatcher may report.
DISPATCHER_KINDS = frozenset({UNDELIVERED, RECALLED, UNBEGUN, ORPHANED})
