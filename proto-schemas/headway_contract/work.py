"""What the scheduler tells the dispatcher."""

from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from headway_contract.envelope import EventData, register
from headway_contract.names import NAME_PATTERN

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Priority = Annotated[int, Meta(ge=0, le=31)]
Seconds = Annotated[float, Meta(ge=0, le=10 * 366 * 86_400)]


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often one piece of work may run in a round, and how long it waits between."""

    attempts: Annotated[int, Meta(ge=1)] = 3
    interval_seconds: Seconds = 60.0
    backoff: Annotated[float, Meta(ge=1)] = 2.0
    max_interval_seconds: Seconds = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1


class WorkQueued(EventData, frozen=True, kw_only=True):
    """A cause made a piece of work."""

    type: ClassVar[str] = "headway.work.queued.v1"

    work: UUID
    round: Annotated[int, Meta(ge=1)] = 1
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name
    job: Name
    input: Any = None
    input_schema: str | None = None
    cause: str
    due_at: datetime | None = None
    queued_at: datetime
    priority: Priority = 0
    slot: Annotated[int, Meta(ge=0)] = 0
    not_before: datetime | None = None
    start_by: datetime | None = None
    retry: RetryPolicy = RetryPolicy()
    timeout_seconds: Seconds = 1200.0
    cancel_grace_seconds: Seconds = 30.0
    on_lost_contact: str = "stop"
    concurrency_key: str | None = None


class GroupChanged(EventData, frozen=True, kw_only=True):
    """The limits of a group. Applied only if its version is newer than the one known."""

    type: ClassVar[str] = "headway.group.changed.v1"

    group: Name
    version: int
    max_active: Annotated[int, Meta(ge=0)] | None = None
    priority: Priority = 0
    enabled: bool = True


register(WorkQueued, GroupChanged)
