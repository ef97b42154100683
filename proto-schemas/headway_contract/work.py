"""What the scheduler tells the dispatcher."""

from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import Meta, Struct

from headway_contract.envelope import EventData, register
from headway_contract.names import NAME_PATTERN

Name = Annotated[str, Meta(pattern=NAME_PATTERN)]
Priority = Annotated[int, Meta(ge=0, le=31)]
Seconds = Annotated[float, Meta(ge=0, le=10 * 366 * 86_400)]
MOST_RUNS_OF_A_LEASE = 1000
# Half of the age that events are kept for: the claim of a longer run could expire under it.
LONGEST_TIMEOUT_SECONDS = 3.5 * 86_400
LONGEST_GRACE_SECONDS = 3600


class Rate(Struct, frozen=True, kw_only=True):
    """So many runs may begin in any stretch of time of this length."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    period_seconds: Annotated[float, Meta(gt=0, le=366 * 86_400)]


# Short and without NUL characters, which PostgreSQL does not store.
Kind = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


class RetryPolicy(Struct, frozen=True, kw_only=True):
    """How often one piece of work may run in a round, and how long it waits between.

    `abort_on` names kinds of failure that are never tried again, `retry_on` the only ones that
    are (none named: all of them); a failure on both lists is not. A kind also stands for the
    more special ones that a failure names in its `kinds`.

    `max_interval_seconds` bounds what `backoff` makes of the interval, never the interval itself.
    """

    attempts: Annotated[int, Meta(ge=1, le=1_000_000)] = 3
    interval_seconds: Seconds = 60.0
    backoff: Annotated[float, Meta(ge=1)] = 2.0
    max_interval_seconds: Seconds = 3600.0
    jitter: Annotated[float, Meta(ge=0, le=1)] = 0.1
    retry_on: Annotated[tuple[Kind, ...], Meta(max_length=100)] = ()
    abort_on: Annotated[tuple[Kind, ...], Meta(max_length=100)] = ()


class RunTerms(Struct, frozen=True, kw_only=True):
    """The terms of work that its worker acts on: each run of an order has them as fields."""

    timeout_seconds: Annotated[float, Meta(gt=0, le=LONGEST_TIMEOUT_SECONDS)] = 1200.0
    cancel_grace_seconds: Annotated[float, Meta(ge=0, le=LONGEST_GRACE_SECONDS)] = 30.0


class WorkTerms(RunTerms, frozen=True, kw_only=True):
    """The terms of work, which travel unchanged from a definition to the order of a run.

    This is the only list of them. Definitions of manifests and the terms of jobs inherit it; the
    `terms` columns, `work.queued` and the services carry it whole. Users write a field without
    its `_seconds`: `App.job` and YAML name it so.

    Work with an equal `concurrency_key`, which is a template here, shares `concurrency_limit`.
    """

    priority: Priority = 0
    retry: RetryPolicy = RetryPolicy()
    on_lost_contact: Literal["stop", "continue"] = "stop"
    on_dead_letter: Literal["block", "go_on"] = "block"
    concurrency_key: str | None = None
    concurrency_limit: Annotated[int, Meta(ge=1, le=1_000_000)] = 1
    start_within_seconds: Annotated[float, Meta(gt=0, le=10 * 366 * 86_400)] | None = None


_DEFAULT_TERMS: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(WorkTerms()))


def terms_of(source: RunTerms, kind: type[RunTerms] = WorkTerms) -> dict[str, Any]:
    """Return the terms of work that a definition, a job or other terms have, by field."""
    return {name: getattr(source, name) for name in kind.__struct_fields__}


def stored_terms(stored: dict[str, Any]) -> dict[str, Any]:
    """Return stored terms with all fields: an older version did not write the newer ones."""
    return {**_DEFAULT_TERMS, **stored}


class WorkQueued(EventData, frozen=True, kw_only=True):
    """A cause made a piece of work.

    `terms` are those of its definition. `priority`, `start_by` and `concurrency_key` are computed
    from them for this piece of work.
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
    # Somebody asked for this work, so a manifest that is disabled does not hold it back.
    explicit: bool = False


class GroupChanged(EventData, frozen=True, kw_only=True):
    """The limits of a group. Applied only if its version is newer than the one known.

    A group that is `deleted` has no limits any more, and is forgotten.
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
    """The limits of a job. Applied only if its version is newer than the one known.

    `batch` is how many runs one lease may have. A job that does not count globally is let
    through even if as many runs are active as are allowed over all groups. No application
    declares a `retired` job any more: no new work of it is made, and work that was queued before
    may still run. A job that is declared again comes with a newer version and without `retired`.
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
    """Whether a manifest's work may run. Applied only if its version is newer.

    Work of a disabled manifest waits, retries included, unless somebody asked for it.
    """

    type: ClassVar[str] = "headway.manifest.changed.v1"

    manifest_id: UUID
    manifest: str
    group: Name
    version: int
    enabled: bool = True


class WorkCancelRequested(EventData, frozen=True, kw_only=True):
    """Work is to end early: what waits is settled as cancelled, what runs is asked to stop.

    It may come before the work itself, which then never runs.
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
    """Work that waits should run as soon as there is room; work that runs is left alone."""

    type: ClassVar[str] = "headway.work.brought_forward.v1"

    work: UUID
    group: Name
    at: datetime


class ManifestPruned(EventData, frozen=True, kw_only=True):
    """A manifest is going away with all that belongs to it.

    The dispatcher remembers it for good, so that work which arrives later finds no home;
    it confirms once the last live run has ended and everything is deleted.
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
