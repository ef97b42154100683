"""Questions and requests about work and runs, unwrapped on core NATS.

A request that is refused as a whole is answered with an error; otherwise the answer has a result
for each thing that the request names.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field, structs

from headway_contract import fields
from headway_contract.lifecycle import Failure
from headway_contract.work import WorkCancelRequested
from headway_contract.worker_protocol import LogLine

# An answer has to fit into one message.
Ids = Annotated[list[UUID], Meta(max_length=500)]

WorkState = Literal["queued", "dispatched", "waiting", "settled"]
RunState = Literal["pending", "in_progress", "completed", "failed", "cancelled"]


class EnqueueRequest(fields.KeyedRequest, frozen=True, kw_only=True):
    """Queue work of a declared job, without a manifest; the job's terms are the defaults."""

    job: fields.Name
    input: Any = None
    group: fields.Name | None = None
    priority: fields.Priority | None = None
    delay_seconds: fields.Seconds | None = None
    not_before: datetime | None = None
    start_by: datetime | None = None
    key: fields.RequiredText | None = None
    traceparent: fields.Text | None = None


class EnqueueAnswer(Struct, frozen=True, kw_only=True):
    """The work will be queued; a repeated key returns the same work."""

    work: UUID
    text: str = ""


class EnqueuedStatus(Struct, frozen=True, kw_only=True):
    """Enqueued work that is `waiting` to be queued, or was `refused` for a reason."""

    work: UUID
    job: str
    key: str | None = None
    group: str | None = None
    enqueued_by: str = ""
    enqueued_at: datetime
    state: str
    reason: str | None = None


class DismissRequest(fields.Request, frozen=True, kw_only=True):
    """Delete enqueued work that was refused; its key may be used again."""

    work: UUID


class InputQuestion(Struct, frozen=True, kw_only=True):
    """Check whether a job accepts an input; with a `group`, also its concurrency key."""

    job: fields.Name
    input: Any = None
    manifest_id: UUID | None = None
    group: fields.Name | None = None


class InputAnswer(Struct, frozen=True, kw_only=True):
    """The problem of the input, if any; a job that is not `known` accepts every input."""

    problem: str = ""
    known: bool = True
    concurrency_key: str | UnsetType | None = UNSET


class CancelOutstandingRequest(fields.KeyedRequest, frozen=True, kw_only=True):
    """Cancel all work of a manifest or a group, or one piece of work, even before it arrives."""

    manifest: fields.ManifestId | None = None
    group: fields.Name | None = None
    work: UUID | None = None
    reason: fields.LongText = ""


class NamedWork(Struct, frozen=True, kw_only=True):
    """Work that the dispatcher may not have received yet."""

    work: UUID
    round: Annotated[int, Meta(ge=1)] = 1
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: fields.Name
    cancel_repeated: bool = False  # an earlier request already cancelled it

    def cancel_requested(self, reason: str, at: datetime) -> WorkCancelRequested:
        """Make the event that cancels this work."""
        named = structs.asdict(self)
        del named["cancel_repeated"]
        return WorkCancelRequested(**named, reason=reason, requested_at=at)


class CancelRequest(fields.KeyedRequest, frozen=True, kw_only=True):
    """Cancel work by ids of work or runs, by `works` of the scheduler, by group or by manifest."""

    ids: Ids = field(default_factory=list)
    works: Annotated[list[NamedWork], Meta(max_length=500)] = field(default_factory=list)
    group: fields.Name | None = None
    reason: fields.LongText = ""
    manifest_id: UUID | None = None


class CancelResult(Struct, frozen=True, kw_only=True):
    """The result for one piece of work; `text` describes it."""

    id: UUID
    # settled, asked_to_stop, asked (the dispatcher gets it later), already_settled, unknown
    result: str
    work: UUID | None = None
    run: UUID | None = None
    manifest: str | None = None
    outcome: str | None = None
    text: str = ""


class CancelAnswer(Struct, frozen=True, kw_only=True):
    """The results that fit into an answer; if there is `more` work, repeat the request."""

    results: list[CancelResult] = []
    counts: dict[str, int] = {}  # of all results, by kind
    dropped: int = 0  # occurrences that get no work
    more: bool = False


class WorkStatus(Struct, frozen=True, kw_only=True):
    """The state of a piece of work; `wait_reason` is why it waits."""

    work: UUID
    round: int
    manifest: str | None = None
    group: str
    job: str
    cause: str
    state: str
    wait_reason: str | None = None
    outcome: str | None = None
    priority: int = 0
    attempts: int = 0
    runs: int = 0
    run: UUID | None = None
    due_at: datetime | None = None
    queued_at: datetime
    not_before: datetime | None = None
    settled_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    cancel_reason: str | None = None


class RunStatus(Struct, frozen=True, kw_only=True):
    """The state of a run, in schedule time; `due_at` is the due time of its work."""

    run: UUID
    work: UUID
    round: int
    attempt: int
    manifest: str | None = None
    group: str
    job: str
    state: str
    worker: str | None = None
    host: str | None = None
    due_at: datetime | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failure_kind: str | None = None
    failure_message: str | None = None
    cancel_reason: str | None = None


class WorkAnswer(Struct, frozen=True, kw_only=True):
    """One piece of work in full, with its runs (latest first) and its dead letters."""

    status: WorkStatus
    input: Any = None
    retry: dict[str, Any] = {}
    timeout_seconds: float = 0.0
    runs: list[RunStatus] = []
    dead_letters: list[UUID] = []


class RunAnswer(Struct, frozen=True, kw_only=True):
    """One run in full, with its progress and its log."""

    status: RunStatus
    lease: UUID
    input: Any = None
    output: Any = None
    failure: Failure | None = None
    trace_id: str | None = None
    percent: float | None = None
    message: str | None = None
    log: list[LogLine] = []
    log_dropped: int = 0


class RunLogAnswer(Struct, frozen=True, kw_only=True):
    """Log lines of a run in order, up to a page of them, and the values that change while it runs.

    Lines are kept with the run; of its progress only the latest is.
    """

    run: UUID
    state: str
    percent: float | None = None
    message: str | None = None
    lines: list[LogLine] = []
    dropped: int = 0


class WorkQuestion(Struct, frozen=True, kw_only=True):
    """Ask for the state of a piece of work."""

    work: UUID


class OriginAnswer(Struct, frozen=True, kw_only=True):
    """The scheduler's state of work that the dispatcher does not know."""

    state: str = "unknown"  # or enqueued, refused, on_its_way, settled (and deleted there)
    text: str = ""
    manifest: str | None = None
    group: str = ""
    job: str = ""
    since: datetime | None = None


class GateStatus(Struct, frozen=True, kw_only=True):
    """One gate; `opens_at` is when a closed gate opens by itself, if that is known."""

    gate: str
    open: bool
    text: str
    used: int | None = None
    limit: int | None = None
    opens_at: datetime | None = None


class SlotHolder(Struct, frozen=True, kw_only=True):
    """A run that holds a slot for which the work waits."""

    run: UUID
    work: UUID
    manifest: str | None = None
    group: str
    job: str
    worker: str | None = None
    state: str
    since: datetime


class ExplainWorkAnswer(Struct, frozen=True, kw_only=True):
    """The state of a piece of work; `text` explains it and what it waits for."""

    work: UUID
    state: str  # of the dispatcher, or of `OriginAnswer`
    group: str
    job: str
    text: str
    manifest: str | None = None
    round: int = 1
    attempts: int = 0
    runs: int = 0
    queued_at: datetime | None = None
    outcome: str | None = None
    reason: str | None = None  # the first closed gate
    gates: list[GateStatus] = []  # in the order of the checks
    holders: list[SlotHolder] = []  # runs that keep it closed, oldest first
    holders_in_all: int = 0
    ahead: int | None = None  # the number of pieces of work before this one
    ahead_or_more: bool = False  # there are more of them
    estimated_start: datetime | None = None
    estimate: str = ""  # the basis of the estimate, or the reason why there is none
    expires_at: datetime | None = None
