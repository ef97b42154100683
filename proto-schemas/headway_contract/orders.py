"""Orders from the dispatcher to workers: each grants a lease on one or more runs."""

from datetime import datetime
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta

from headway_contract.envelope import EventData
from headway_contract.fields import Name, Seconds
from headway_contract.work import RunTerms


class OrderedRun(RunTerms, frozen=True, kw_only=True):
    """One run that the lease allows."""

    run: UUID
    work: UUID
    round: int = 1
    attempt: Annotated[int, Meta(ge=1)]
    attempts: Annotated[int, Meta(ge=1)]
    manifest: str | None = None
    group: Name
    cause: str
    due_at: datetime | None = None
    input: Any = None
    input_schema: str | None = None
    traceparent: str | None = None


class RunDispatched(EventData, frozen=True, kw_only=True):
    """The right to run, for the first worker that claims the lease; the token is secret."""

    type: ClassVar[str] = "headway.run.dispatched.v1"
    lease: UUID
    token: str
    job: Name
    runs: Annotated[list[OrderedRun], Meta(min_length=1)]
    heartbeat_seconds: Seconds = 3.0
    orphan_timeout_seconds: Seconds = 60.0
    renew_seconds: Seconds | None = None
    on_lost_contact: str = "stop"
    # The worker hands back the runs that have not begun when it has held the lease this long.
    hand_back_seconds: Seconds | None = None
