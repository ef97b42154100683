"""Requests about dead letters and canaries, unwrapped on core NATS."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, field

from headway_contract import fields
from headway_contract.lifecycle import Failure
from headway_contract.settled import InputChange
from headway_contract.work_queue import Ids

# An answer has to fit into one message.
Limit = Annotated[int, Meta(ge=1, le=500)]
LetterState = Literal["awaiting", "retried", "acknowledged"]
CanaryState = Literal["running", "stopped", "finished"]


class LetterFilter(Struct, frozen=True, kw_only=True):
    """Conditions on dead letters; all that are given must hold."""

    group: fields.Name | None = None
    job: fields.Name | None = None
    manifest: fields.ManifestId | None = None
    fingerprint: fields.Text | None = None  # matches every code version if it does not end with one
    state: LetterState | None = None
    created_after: fields.Moment | None = None
    created_before: fields.Moment | None = None


class DeadLetterStatus(Struct, frozen=True, kw_only=True):
    """The state of a dead letter; a requested retry waits until `waits_for` leaves the slot."""

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
    retry_asked_at: datetime | None = None  # language: allow
    retry_asked_by: str | None = None  # language: allow
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
    """One dead letter in full, with its runs and the edit of its input."""

    status: DeadLetterStatus
    cause: str = ""
    input: Any = None
    failure: Failure
    runs: list[Attempt] = []
    edit: list[InputChange] = []


class LettersRequest(fields.KeyedRequest, frozen=True, kw_only=True):
    """A request about dead letters by id, or about all open ones of a filter.

    A filter is processed in pages, oldest first: while there is `more`, repeat the request with
    `after` set to `last`. Send `created_before` of the first answer again to exclude later letters.
    """

    dead_letters: Ids = field(default_factory=list)
    filter: LetterFilter | None = None
    after: fields.Text = ""
    limit: Limit = 500


class RetryRequest(LettersRequest, frozen=True, kw_only=True):
    """Run the work of dead letters again, in a new round; a single one also with a new `input`."""

    input: Any = UNSET


class AcknowledgeRequest(LettersRequest, frozen=True, kw_only=True):
    """Close dead letters without a retry, with a note."""

    note: fields.LongText = ""


class LetterResult(Struct, frozen=True, kw_only=True):
    """The result for one dead letter: `retried`, `waits` (for its slot), `acknowledged` or refused.

    Refusals are `already_retried`, `already_acknowledged`, `already_asked`, `pruned`,
    `job_retired` and `unknown`.
    """

    dead_letter: UUID
    result: str
    work: UUID | None = None
    round: int | None = None
    text: str = ""


class LettersChanged(Struct, frozen=True, kw_only=True):
    """The result for each letter of a request, or of one page of a filter."""

    results: list[LetterResult] = []
    last: str = ""
    more: bool = False
    created_before: datetime | None = None


class BeginCanaryRequest(fields.KeyedRequest, frozen=True, kw_only=True):
    """Retry the dead letters of a failure in steps: 1, then 10, then all."""

    fingerprint: fields.RequiredText


class CanaryRef(Struct, frozen=True, kw_only=True):
    """The id of a canary."""

    canary: UUID


class StopCanaryRequest(fields.Request, frozen=True, kw_only=True):
    """Stop a canary; work under way continues."""

    canary: UUID


class CanaryStep(Struct, frozen=True, kw_only=True):
    """One step: its size (`null`: all remaining letters) and the number of letters by result."""

    size: int | None
    fates: dict[str, int]


class CanaryStatus(Struct, frozen=True, kw_only=True):
    """The state of a canary; `reason` explains its next step or its end."""

    id: UUID
    fingerprint: str
    actor: str
    began_at: datetime
    ended_at: datetime | None
    awaiting: int
    state: CanaryState
    reason: str
    step: int
    steps: list[CanaryStep]
