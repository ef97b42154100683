"""Events from the scheduler to the dispatcher, and the terms of work."""

from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from headway_contract.envelope import EventData
from headway_contract.fields import Count, Name, Priority, Rate, RequiredText, Seconds, StartWithin

MOST_RUNS_OF_A_LEASE = 1000
# Up to half of the age of stored events: the claim of a longer run could expire.
Timeout = Annotated[float, Meta(gt=0, le=3.5 * 86_400)]
Grace = Annotated[float, Meta(ge=0, le=3600)]


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """The attempts of a piece of work in a round, and the waits between them."""

    attempts: Count = 3
    interval_seconds: Seconds = 60.0
    backoff: Annotated[float, Meta(ge=1)] = 2.0
    max_interval_seconds: Seconds = 3600.0  # limits the growth by `backoff`, not the interval
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    # Kinds of failures. If `retry_on` is not empty, only its kinds are retried; `abort_on` wins.
    retry_on: Annotated[tuple[RequiredText, ...], Meta(max_length=100)] = ()
    abort_on: Annotated[tuple[RequiredText, ...], Meta(max_length=100)] = ()


class RunTerms(Struct, frozen=True, kw_only=True):
    """The terms that a worker needs: each run of an order has these fields."""

    timeout_seconds: Timeout = 1200.0
    cancel_grace_seconds: Grace = 30.0


class WorkTerms(RunTerms, frozen=True, kw_only=True):
    """The terms of work, which travel unchanged from a definition to the order of a run.

    This is the only list of them: definitions inherit it, and the `terms` columns and `work.queued`
    contain it. In `App.job` and YAML, names have no suffix `_seconds`. `concurrency_key` is a
    template; work with an equal key shares `concurrency_limit`.
    """

    priority: Priority = 0
    retry: RetryPolicy = RetryPolicy()
    on_lost_contact: Literal["stop", "continue"] = "stop"
    on_dead_letter: Literal["block", "go_on"] = "block"
    concurrency_key: str | None = None
    concurrency_limit: Count = 1
    start_within_seconds: StartWithin | None = None


_DEFAULT_TERMS: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(WorkTerms()))
# Stored even if they are defaults, because statements read them.
_READ_BY_SQL = frozenset({*RunTerms.__struct_fields__, "on_lost_contact", "attempts"})


def terms_of(source: RunTerms, kind: type[RunTerms] = WorkTerms) -> dict[str, Any]:
    """Return the terms of a definition, of a job or of other terms, by field."""
    return {name: getattr(source, name) for name in kind.__struct_fields__}


def stored_terms(stored: dict[str, Any]) -> dict[str, Any]:
    """Complete stored terms with the defaults of fields that were not written."""
    retry = _DEFAULT_TERMS["retry"] | stored.get("retry", {})
    return {**_DEFAULT_TERMS, **stored, "retry": retry}


def stored_retry(stored: dict[str, Any]) -> dict[str, Any]:
    """Complete the stored retry policy of work; work of an unknown job has none."""
    return {**_DEFAULT_TERMS["retry"], **stored} if stored else {}


@lru_cache(maxsize=1024)
def terms_to_store(terms: WorkTerms) -> dict[str, Any]:
    """Return terms without most defaults, which would be half of a row. Do not change them."""
    retry = _without_defaults(terms.retry, RetryPolicy())
    return {**_without_defaults(terms, WorkTerms()), "retry": retry}


def _without_defaults(terms: Struct, defaults: Struct) -> dict[str, Any]:
    return {
        name: value
        for name, value in msgspec.to_builtins(terms).items()
        if name in _READ_BY_SQL or getattr(terms, name) != getattr(defaults, name)
    }


class WorkEvent(EventData, frozen=True, kw_only=True):
    """An event of one round of a piece of work."""

    work: UUID
    round: int
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name


class WorkQueued(WorkEvent, frozen=True, kw_only=True):
    """Work was created; `priority`, `start_by` and `concurrency_key` follow from its `terms`."""

    type: ClassVar[str] = "headway.work.queued.v1"
    round: Annotated[int, Meta(ge=1)] = 1
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
    explicit: bool = False  # a user requested it, so a disabled manifest does not hold it


class GroupChanged(EventData, frozen=True, kw_only=True):
    """The limits of a group, applied only if the version is newer; none if it is `deleted`."""

    type: ClassVar[str] = "headway.group.changed.v1"
    group: Name
    version: int
    max_active: Annotated[int, Meta(ge=0)] | None = None
    priority: Priority = 0
    enabled: bool = True
    rate: Rate | None = None
    deleted: bool = False


class JobChanged(EventData, frozen=True, kw_only=True):
    """The limits of a job, applied only if the version is newer."""

    type: ClassVar[str] = "headway.job.changed.v1"
    job: Name
    version: int
    max_active: Annotated[int, Meta(ge=0)] | None = None
    rate: Rate | None = None
    counts_globally: bool = True  # whether the global limit applies
    # Most runs in a lease; without it the dispatcher decides by the duration of recent runs.
    batch: Annotated[int, Meta(ge=1, le=MOST_RUNS_OF_A_LEASE)] | None = None
    retired: bool = False  # gets no new work; queued work may still run


class ManifestEvent(EventData, frozen=True, kw_only=True):
    """An event of a manifest."""

    manifest_id: UUID
    manifest: str
    group: Name


class ManifestChanged(ManifestEvent, frozen=True, kw_only=True):
    """A manifest was enabled or disabled; applied only if the version is newer."""

    type: ClassVar[str] = "headway.manifest.changed.v1"
    version: int
    enabled: bool = True


class WorkCancelRequested(WorkEvent, frozen=True, kw_only=True):
    """Cancel waiting or running work, or work that arrives later."""

    type: ClassVar[str] = "headway.work.cancel_requested.v1"
    round: Annotated[int, Meta(ge=1)] = 1
    reason: str = ""
    requested_at: datetime


class WorkBroughtForward(EventData, frozen=True, kw_only=True):
    """Run waiting work as soon as there is room; running work is not affected."""

    type: ClassVar[str] = "headway.work.brought_forward.v1"
    work: UUID
    group: Name
    at: datetime


class ManifestPruned(ManifestEvent, frozen=True, kw_only=True):
    """Delete a manifest with everything that belongs to it, and refuse later work of it."""

    type: ClassVar[str] = "headway.manifest.pruned.v1"
    reason: str = ""
    pruned_at: datetime
