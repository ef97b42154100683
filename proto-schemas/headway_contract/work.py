"""Events from the scheduler to the dispatcher, and the terms of work."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from headway_contract.envelope import EventData, register
from headway_contract.fields import (
    Count,
    Name,
    Priority,
    Rate,
    RequiredText,
    Seconds,
    StartWithin,
)

MOST_RUNS_OF_A_LEASE = 1000
# Half of the age of stored events: the claim of a longer run could expire.
LONGEST_TIMEOUT_SECONDS = 3.5 * 86_400
LONGEST_GRACE_SECONDS = 3600


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The number of attempts of one piece of work in a round, and the waits between them.

    Failure kinds in `abort_on` are never retried. If `retry_on` is not empty, only its kinds are
    retried. A kind also matches a failure that names it in its `kinds`.

    `max_interval_seconds` limits the growth by `backoff`, not the interval itself.
    """

    attempts: Count = 3
    interval_seconds: Seconds = 60.0
    backoff: Annotated[float, Meta(ge=1)] = 2.0
    max_interval_seconds: Seconds = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    retry_on: Annotated[tuple[RequiredText, ...], Meta(max_length=100)] = ()
    abort_on: Annotated[tuple[RequiredText, ...], Meta(max_length=100)] = ()


class RunTerms(Struct, frozen=True, kw_only=True):
    """The terms of work for its worker: each run of an order has them as fields."""

    timeout_seconds: Annotated[float, Meta(gt=0, le=LONGEST_TIMEOUT_SECONDS)] = 1200.0
    cancel_grace_seconds: Annotated[float, Meta(ge=0, le=LONGEST_GRACE_SECONDS)] = 30.0


class WorkTerms(RunTerms, frozen=True, kw_only=True):
    """The terms of work, which travel unchanged from a definition to the order of a run.

    This is the only list of them. Definitions of manifests and the terms of jobs inherit it; the
    `terms` columns, `work.queued` and the services carry it whole. In `App.job` and YAML, fields
    have no `_seconds` in their names.

    Work with an equal `concurrency_key`, which is a template here, shares `concurrency_limit`.
    """

    priority: Priority = 0
    retry: RetryPolicy = RetryPolicy()
    on_lost_contact: Literal["stop", "continue"] = "stop"
    on_dead_letter: Literal["block", "go_on"] = "block"
    concurrency_key: str | None = None
    concurrency_limit: Count = 1
    start_within_seconds: StartWithin | None = None


_DEFAULT_TERMS: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(WorkTerms()))


def terms_of(source: RunTerms, kind: type[RunTerms] = WorkTerms) -> dict[str, Any]:
    """Return the terms of work that a definition, a job or other terms have, by field."""
    return {name: getattr(source, name) for name in kind.__struct_fields__}


def stored_terms(stored: dict[str, Any]) -> dict[str, Any]:
    """Return stored terms with all fields: an older version did not write the newer ones."""
    return {**_DEFAULT_TERMS, **stored}


class WorkQueued(EventData, frozen=True, kw_only=True):
    """Work was created for a cause.

    `terms` are those of its definition. `priority`, `start_by` and `concurrency_key` are computed
    from them for this piece of work. `explicit` work was requested by a user, so a disabled
    manifest does not hold it.
    """

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
    slot: Annotated[int, Meta(ge=0)] = 0
    not_before: datetime | None = None
    terms: WorkTerms = WorkTerms()
    priority: Priority = 0
    start_by: datetime | None = None
    concurrency_key: Annotated[str, Meta(min_length=1, max_length=255)] | None = None
    explicit: bool = False


class GroupChanged(EventData, frozen=True, kw_only=True):
    """The limits of a group. Applied only if its version is newer than the known one.

    A `deleted` group has no limits.
    """

    type: ClassVar[str] = "headway.group.changed.v1"

    group: Name
    version: int
    max_active: Annotated[int, Meta(ge=0)] | None = None
    priority: Priority = 0
    enabled: bool = True
    rate: Rate | None = None
    deleted: bool = False


class JobChanged(EventData, frozen=True, kw_only=True):
    """The limits of a job. Applied only if its version is newer than the known one.

    `batch` is the maximum of runs in one lease. The global limit does not apply to a job without
    `counts_globally`. No application declares a `retired` job: it gets no new work, and queued
    work may still run.
    """

    type: ClassVar[str] = "headway.job.changed.v1"

    job: Name
    version: int
    max_active: Annotated[int, Meta(ge=0)] | None = None
    rate: Rate | None = None
    counts_globally: bool = True
    batch: Annotated[int, Meta(ge=1, le=MOST_RUNS_OF_A_LEASE)] = 1
    retired: bool = False


class ManifestChanged(EventData, frozen=True, kw_only=True):
    """A manifest was enabled or disabled. Applied only if its version is newer.

    Work of a disabled manifest waits, retries included, unless a user requested it.
    """

    type: ClassVar[str] = "headway.manifest.changed.v1"

    manifest_id: UUID
    manifest: str
    group: Name
    version: int
    enabled: bool = True


class WorkCancelRequested(EventData, frozen=True, kw_only=True):
    """Cancel work: waiting work is settled as cancelled, and running work is asked to stop.

    It may arrive before the work, which then never runs.
    """

    type: ClassVar[str] = "headway.work.cancel_requested.v1"

    work: UUID
    round: Annotated[int, Meta(ge=1)] = 1
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name
    reason: str = ""
    requested_at: datetime


class WorkBroughtForward(EventData, frozen=True, kw_only=True):
    """Run waiting work as soon as there is room; running work is not affected."""

    type: ClassVar[str] = "headway.work.brought_forward.v1"

    work: UUID
    group: Name
    at: datetime


class ManifestPruned(EventData, frozen=True, kw_only=True):
    """Delete a manifest with everything that belongs to it.

    The dispatcher keeps a tombstone, so that later work of it is refused. It confirms when the
    last live run has ended and everything is deleted.
    """

    type: ClassVar[str] = "headway.manifest.pruned.v1"

    manifest_id: UUID
    manifest: str
    group: Name
    reason: str = ""
    pruned_at: datetime


register(
    WorkQueued,
    GroupChanged,
    JobChanged,
    ManifestChanged,
    WorkCancelRequested,
    WorkBroughtForward,
    ManifestPruned,
)
