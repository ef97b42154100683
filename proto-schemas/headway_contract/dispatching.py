"""Questions and requests to the dispatcher. They travel on core NATS, unwrapped.

Lists come a page at a time, the newest first: ask again with `after` set to the `last` of the
answer while there is `more`. A request that is refused as a whole is answered with an error
that says why; what became of each thing that it names stands in the answer. Every request that
changes something names its actor, for the audit.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct

from headway_contract.control import Text
from headway_contract.lifecycle import Failure
from headway_contract.progress import LogLine
from headway_contract.scheduling import ManifestId
from headway_contract.settled import InputChange
from headway_contract.work import Name, WorkCancelRequested

# An answer has to fit into one message.
Limit = Annotated[int, Meta(ge=1, le=500)]
Ids = Annotated[list[UUID], Meta(max_length=500)]
Reason = Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00]*$")]

LetterState = Literal["awaiting", "retried", "acknowledged"]
WorkStateAsked = Literal["queued", "dispatched", "waiting", "settled"]
RunStateAsked = Literal["pending", "in_progress", "completed", "failed", "cancelled"]


class LetterFilter(Struct, frozen=True, kw_only=True):
    """Which dead letters are meant; what is left out does not matter.

    A `fingerprint` with its code version (`3f9a2c1b7d20@1.4.2`) means that version only, and
    without it any.
    """

    group: Name | None = None
    job: Name | None = None
    manifest: ManifestId | None = None
    fingerprint: Text | None = None
    state: LetterState | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


class DeadLetterStatus(Struct, frozen=True, kw_only=True):
    """How a dead letter stands.

    `retry_asked_at` says that somebody wants it retried and that it waits for the slot of its
    manifest, which the work `waits_for` has.
    """

    dead_letter: UUID
    work: UUID
    round: int
    manifest: str | None = None
    group: str
    job: str
    reason: str
    failure_kind: str = ""
    failure_message: str = ""
    attempts: int = 0
    fingerprint: str = ""
    state: str
    created_at: datetime
    resolved_at: datetime | None = None
    actor: str | None = None
    note: str | None = None
    retry_asked_at: datetime | None = None
    retry_asked_by: str | None = None
    waits_for: UUID | None = None


class Attempt(Struct, frozen=True, kw_only=True):
    """One run of the round that ended in the dead letter."""

    run: UUID
    attempt: int
    state: str
    worker: str | None = None
    host: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    failure: Failure | None = None


class DeadLetterAnswer(Struct, frozen=True, kw_only=True):
    """One dead letter in full: what failed, on which input, and how it was edited."""

    status: DeadLetterStatus
    cause: str = ""
    input: Any = None
    failure: Failure
    runs: list[Attempt] = []
    edit: list[InputChange] = []


class RetryRequest(Struct, frozen=True, kw_only=True):
    """Run the work of dead letters again, in a new round: those named, or those of a filter.

    An `input` takes the place of the one that failed; it is for one letter only. A filter means
    letters that await somebody, the oldest first, a page at a time; those that come about
    meanwhile are left out by sending `created_before` of the first answer again. With a `key` it is
    done once, and answered alike for a week.
    """

    dead_letters: Ids = []
    filter: LetterFilter | None = None
    input: Any = UNSET
    actor: Text = ""
    after: Text = ""
    limit: Limit = 500
    key: Text | None = None


class AcknowledgeRequest(Struct, frozen=True, kw_only=True):
    """Put dead letters away, with a note: those named, or those of a filter. With a `key`, once."""

    dead_letters: Ids = []
    filter: LetterFilter | None = None
    note: Reason = ""
    actor: Text = ""
    after: Text = ""
    limit: Limit = 500
    key: Text | None = None


class LetterResult(Struct, frozen=True, kw_only=True):
    """What became of one dead letter; `text` says it in words.

    `retried`, `waits` (its slot is taken, it runs after that), `acknowledged`, or why not:
    `already_retried`, `already_acknowledged`, `already_asked`, `pruned`, `job_retired`, `unknown`.
    """

    dead_letter: UUID
    result: str
    work: UUID | None = None
    round: int | None = None
    text: str = ""


class LettersChanged(Struct, frozen=True, kw_only=True):
    """What became of each letter of a request; for a filter, one page."""

    results: list[LetterResult] = []
    last: str = ""
    more: bool = False
    created_before: datetime | None = None


class NamedWork(Struct, frozen=True, kw_only=True):
    """Work as the scheduler knows it, for a dispatcher that may not have heard of it yet.

    `cancel_repeated` says that an earlier request cancelled it already.
    """

    work: UUID
    round: Annotated[int, Meta(ge=1)] = 1
    manifest_id: UUID | None = None
    manifest: str | None = None
    group: Name
    cancel_repeated: bool = False

    def cancel_requested(self, reason: str, at: datetime) -> WorkCancelRequested:
        """Make the event that cancels this work."""
        return WorkCancelRequested(
            work=self.work,
            round=self.round,
            manifest_id=self.manifest_id,
            manifest=self.manifest,
            group=self.group,
            reason=reason,
            requested_at=at,
        )


class CancelRequest(Struct, frozen=True, kw_only=True):
    """End work early: by the ids of works or runs, as the scheduler names it, of a group, or of a
    manifest.

    With a `key` it is done once, and answered alike for a week.
    """

    ids: Ids = []
    works: Annotated[list[NamedWork], Meta(max_length=500)] = []
    group: Name | None = None
    reason: Reason = ""
    actor: Text = ""
    key: Text | None = None
    manifest_id: UUID | None = None


class CancelResult(Struct, frozen=True, kw_only=True):
    """What became of one piece of work; `text` says it in words.

    `settled` (it waited, and never starts), `asked_to_stop` (a worker has it), `asked` (the
    dispatcher did not answer in time, and will hear of it), `already_settled` or `unknown`.
    """

    id: UUID
    result: str
    work: UUID | None = None
    run: UUID | None = None
    manifest: str | None = None
    outcome: str | None = None
    text: str = ""


class CancelAnswer(Struct, frozen=True, kw_only=True):
    """What became of each, as far as an answer has room, and how many came to which result.

    `more` if a group has more than one request takes: ask again. `dropped` is how many
    occurrences were decided and had no work yet: they never get any.
    """

    results: list[CancelResult] = []
    counts: dict[str, int] = {}
    dropped: int = 0
    more: bool = False


class WorkStatus(Struct, frozen=True, kw_only=True):
    """How a piece of work stands; while it waits, `wait_reason` says why."""

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
    """How a run stands. Its times are those of the schedule; `due_at` is what it runs for."""

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
    """One piece of work in full, with its runs (the latest first) and its dead letters."""

    status: WorkStatus
    input: Any = None
    retry: dict[str, Any] = {}
    timeout_seconds: float = 0.0
    runs: list[RunStatus] = []
    dead_letters: list[UUID] = []


class RunAnswer(Struct, frozen=True, kw_only=True):
    """One run in full."""

    status: RunStatus
    lease: UUID
    input: Any = None
    output: Any = None
    failure: Failure | None = None
    trace_id: str | None = None
    # What it told of itself while it ran; lines that it was not allowed to keep are counted.
    percent: float | None = None
    message: str | None = None
    log: list[LogLine] = []
    log_dropped: int = 0


class WorkerStatus(Struct, frozen=True, kw_only=True):
    """A worker process as its heartbeats tell it; `alive` until the orphan timeout."""

    worker: str
    host: str = ""
    sdk: str = ""
    sdk_version: str = ""
    code_version: str = ""
    jobs: list[str] = []
    slots: int = 0
    alive: bool
    draining: bool = False
    first_heard_at: datetime
    last_heard_at: datetime
    runs: list[UUID] = []


class GroupOccupancy(Struct, frozen=True, kw_only=True):
    """What a group has under way, what waits in it and why, and how many letters await."""

    group: str
    max_active: int | None = None
    enabled: bool = True
    pending: int = 0
    in_progress: int = 0
    waiting: dict[str, int] = {}
    dead_letters: int = 0


class OccupancyAnswer(Struct, frozen=True, kw_only=True):
    """The groups in the order of their names, and the limit over all of them."""

    max_active: int
    groups: list[GroupOccupancy] = []
