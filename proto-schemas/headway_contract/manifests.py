"""Questions and requests about manifests, to the scheduler, unwrapped on core NATS."""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field

from headway_contract import fields
from headway_contract.lifecycle import Activation

# Fields of a manifest that an operator can give back to the code.
ManifestField = Literal["enabled", "attempts", "interval", "jitter", "retry"]


class ManifestStatus(Struct, frozen=True, kw_only=True):
    """The state of a manifest; `held_by` is the reason why it does not fire, if any.

    `next_fire_at` is when it fires next as far as that is known now: never while a dead letter
    blocks it (`blocked_by`). `next_due_at` is its first due time without a decision, maybe past.
    """

    external_id: str
    owner: str
    job: str
    group: str
    enabled: bool
    declared: bool
    next_due_at: datetime | None = None
    blocked_by: UUID | None = None
    last_outcome: str | None = None
    last_settled_at: datetime | None = None
    success_number: int = 0
    cadence: str = ""
    zone: str = "UTC"
    next_fire_at: datetime | None = None
    held_by: str | None = None
    outstanding: int = 0
    owed: int = 0
    depends_on: str | None = None
    dormant: bool = False
    id: UUID | None = None


class FieldOwner(Struct, frozen=True, kw_only=True):
    """The owner of one field; `give_back` is the command that returns it to the code."""

    field: str
    value: Any
    owner: Literal["operator", "code", "api", "default"]
    application: str = ""
    give_back: str = ""


class ManifestAnswer(Struct, frozen=True, kw_only=True):
    """One manifest; `touched` names the fields that operators changed."""

    status: ManifestStatus
    definition: dict[str, Any]
    touched: list[str] = []
    sent: dict[str, Any] | None = None  # without the terms that it inherits from its job
    owners: list[FieldOwner] = []


class PreviewQuestion(Struct, frozen=True, kw_only=True):
    """List the next fire times; excluded times are folded and not counted, unless `each`."""

    manifest: fields.ManifestId
    count: Annotated[int, Meta(ge=1, le=1000)] = 20
    after: datetime | None = None
    each: bool = False


class FireTime(Struct, frozen=True, kw_only=True):
    """A computed fire time: when it is due, and when it fires after its jitter."""

    due_at: datetime
    fire_at: datetime
    local: str
    excluded: str | None = None  # the exclusion that skips it
    dst: str | None = None  # `gap` or `repeated` if the clock changes on that day
    until: datetime | None = None  # the last excluded time that is folded into this one
    times: int = 1  # the number of folded times; 0 if there are too many to count


class PreviewAnswer(Struct, frozen=True, kw_only=True):
    """The fire times; `note` explains why there are none or why they may not fire."""

    manifest: str
    zone: str
    fires: list[FireTime] = []
    note: str = ""


class ExplainQuestion(Struct, frozen=True, kw_only=True):
    """Explain why a manifest ran or did not run, at a time or now."""

    manifest: fields.ManifestId
    at: datetime | None = None


class LedgerEntry(Struct, frozen=True, kw_only=True):
    """One decision of the ledger."""

    cause: str
    first_due_at: datetime
    last_due_at: datetime
    decision: str
    reason: str | None = None
    work: UUID | None = None
    outcome: str | None = None
    decided_at: datetime | None = None
    actor: str | None = None
    not_before: datetime | None = None  # the end of its delay
    brought_forward: UUID | None = None  # the work that goes first instead


class ExplainAnswer(Struct, frozen=True, kw_only=True):
    """The explanation, and the ledger entries that it is based on."""

    manifest: str
    text: str
    entries: list[LedgerEntry] = []
    works: list[UUID] = []  # work under way, or the failed work that blocks it


class LedgerQuestion(Struct, frozen=True, kw_only=True):
    """Compare fire times with the ledger, one page of manifests at a time."""

    manifest: fields.ManifestId | None = None
    since: datetime | None = None
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class LedgerGap(Struct, frozen=True, kw_only=True):
    """Fire times without a decision, or decisions without a fire time."""

    manifest: str
    first_due_at: datetime
    last_due_at: datetime
    trouble: str


class LedgerAnswer(Struct, frozen=True, kw_only=True):
    """The result of one page; if there is `more`, continue after `last`."""

    manifests: int = 0
    fire_times: int = 0
    gaps: list[LedgerGap] = []
    last: str = ""
    more: bool = False
    unfinished: dict[str, datetime] = {}  # manifests to continue from a time


class ActivationQuestion(Struct, frozen=True, kw_only=True):
    """Ask whether the runs of a manifest may activate these dependents with these inputs."""

    manifest: fields.ManifestId
    activations: Annotated[list[Activation], Meta(min_length=1, max_length=10_000)]


class ActivationAnswer(Struct, frozen=True, kw_only=True):
    """The problems of the activations; all are allowed if there are none."""

    problems: list[str] = []


class ChangeRequest(fields.Request, frozen=True, kw_only=True):
    """Enable or disable a manifest, change its retries or jitter, or `give_back` such fields."""

    manifest: fields.ManifestId
    enabled: bool | UnsetType = UNSET
    attempts: fields.Count | UnsetType = UNSET
    interval_seconds: fields.Seconds | UnsetType = UNSET
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] | UnsetType = UNSET
    give_back: list[ManifestField] = field(default_factory=list)


class TriggerRequest(fields.KeyedRequest, frozen=True, kw_only=True):
    """Run a manifest now or after a delay, in addition to its schedule."""

    manifest: fields.ManifestId
    input: Any = UNSET
    delay_seconds: fields.Seconds = 0.0
    priority: fields.Priority | None = None
    start_within_seconds: fields.StartWithin | None = None


class TriggerAnswer(Struct, frozen=True, kw_only=True):
    """The result of a trigger; `text` describes it."""

    # queued, owed (after the outstanding work or the delay), brought_forward (the waiting work),
    # known (the key); one that the overlap policy refuses is answered as a conflict
    result: str
    work: UUID | None = None
    text: str = ""
    not_used: list[str] = []  # parameters that the work brought forward does not use


class BackfillRequest(fields.Request, frozen=True, kw_only=True):
    """Queue each occurrence from `since` to `until`, both included, that was not backfilled yet."""

    manifest: fields.ManifestId
    since: datetime
    until: datetime
    missed_only: bool = False  # without occurrences that fired on schedule
    priority: fields.Priority | None = None
    dry_run: bool = False  # only count


class BackfillAnswer(Struct, frozen=True, kw_only=True):
    """The number of occurrences, by result."""

    occurrences: int
    queued: int
    known: int = 0  # backfilled before
    fired: int = 0  # fired on schedule
    text: str = ""


class DeleteRequest(fields.KeyedRequest, frozen=True, kw_only=True):
    """Delete a manifest that no code declares, with its work, runs and dead letters."""

    manifest: fields.ManifestId


class Selection(fields.KeyedRequest, frozen=True, kw_only=True):
    """A request that selects manifests by exactly one of ids, group, labels (all match) or all."""

    manifests: Annotated[list[fields.ManifestId], Meta(max_length=500)] = field(
        default_factory=list
    )
    group: fields.Name | None = None
    labels: Annotated[dict[fields.Text, fields.Text], Meta(max_length=30)] = field(
        default_factory=dict
    )
    all: bool = False


class ChangeManyRequest(Selection, frozen=True, kw_only=True):
    """Enable, disable or run many manifests; a refused one does not stop the others."""

    action: Literal["enable", "disable", "run"]
    after: fields.Text = ""  # without ids: `last` of the previous page
    dry_run: bool = False


class ManifestResult(Struct, frozen=True, kw_only=True):
    """The result for one manifest; `text` describes it, or why it was refused."""

    manifest: str
    done: bool
    text: str = ""


class ManyChanged(Struct, frozen=True, kw_only=True):
    """The results, in the order of the request or of the ids."""

    results: list[ManifestResult] = []
    last: str = ""
    more: bool = False


class PauseRequest(Selection, frozen=True, kw_only=True):
    """Pause manifests until a time or until resumed, in addition to other pauses.

    A pause of a group, of labels or of all also covers manifests that are declared later.
    """

    until: datetime | None = None
    reason: fields.Text = ""
    dry_run: bool = False


class PausedManifest(Struct, frozen=True, kw_only=True):
    """A paused manifest, and its first due time without a decision."""

    manifest: str
    paused_at: datetime
    paused_until: datetime | None = None  # by all pauses that hold it
    reason: str = ""
    next_due_at: datetime | None = None


class PauseAnswer(Struct, frozen=True, kw_only=True):
    """The pause, the paused manifests that fit into an answer, and the number of all."""

    text: str
    pause: UUID | None = None  # of a dry run none
    count: int = 0
    manifests: list[PausedManifest] = []
    dry_run: bool = False


class PauseStatus(Struct, frozen=True, kw_only=True):
    """A pause in force: what it covers, how many manifests that is now, and its author."""

    id: UUID
    covers: str  # such as `all manifests` or `group billing`
    count: int
    by: str
    since: datetime
    until: datetime | None = None
    reason: str = ""
    manifests: list[str] = []  # if it names them


class ResumeRequest(Selection, frozen=True, kw_only=True):
    """End pauses; the misfire policies of their manifests decide about the missed due times.

    Without ids of pauses it ends the one that was made for the same manifests, group or labels, or
    for all. With ids of pauses, a dry run may also name the manifests that it is about.
    """

    pauses: Annotated[list[UUID], Meta(max_length=100)] = field(default_factory=list)
    dry_run: bool = False


class ResumedManifest(Struct, frozen=True, kw_only=True):
    """The effect of the resume on one manifest."""

    manifest: str
    paused_at: datetime
    reason: str = ""
    policy: str = ""  # the misfire policy
    passed: int = 0  # missed due times
    passed_or_more: bool = False  # there are more of them
    fires: list[datetime] = []  # the latest missed times that the policy fires
    more_fires: int = 0  # earlier ones that it fires
    owed: int = 0  # earlier decisions that run now
    follows: bool = False  # it follows a success of its parent during the pause
    text: str = ""


class ResumeAnswer(Struct, frozen=True, kw_only=True):
    """The resumed manifests that fit into an answer, and the number of all and of their fires.

    Other pauses hold the manifests that are `still_paused`.
    """

    text: str
    pauses: list[UUID] = []
    count: int = 0
    still_paused: int = 0
    fires: int = 0
    manifests: list[ResumedManifest] = []
    dry_run: bool = False
