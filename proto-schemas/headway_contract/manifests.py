"""Questions and requests about manifests, to the scheduler, unwrapped on core NATS.

A refused request is answered with an error that names the reasons, one line each.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, field

from headway_contract.fields import (
    Count,
    KeyedRequest,
    ManifestId,
    Name,
    Priority,
    Request,
    Seconds,
    StartWithin,
    Text,
)
from headway_contract.lifecycle import Activation

# Fields of a manifest that an operator can give back to the code.
ManifestField = Literal["enabled", "attempts", "interval", "jitter", "retry"]


class ManifestStatus(Struct, frozen=True, kw_only=True):
    """The state of a manifest. `held_by` is the reason why it does not fire, if there is one."""

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
    """The owner of one field. `give_back` is the command that returns it to the code.

    `default` means that neither an operator nor an application sets it; `api`, that the manifest
    was made at run time.
    """

    field: str
    value: Any
    owner: Literal["operator", "code", "api", "default"]
    application: str = ""
    give_back: str = ""


class ManifestAnswer(Struct, frozen=True, kw_only=True):
    """One manifest: its state, its definition, and the fields that operators changed.

    If it inherits terms from its job, `sent` is the definition as it was sent, without them.
    """

    status: ManifestStatus
    definition: dict[str, Any]
    touched: list[str] = []
    sent: dict[str, Any] | None = None
    owners: list[FieldOwner] = []


class PreviewQuestion(Struct, frozen=True, kw_only=True):
    """Ask for the next fire times of a manifest after `after`, or after now.

    `count` counts times that fire; excluded times between them are folded. With `each`, every due
    time counts and is listed, excluded or not.
    """

    manifest: ManifestId
    count: Annotated[int, Meta(ge=1, le=1000)] = 20
    after: datetime | None = None
    each: bool = False


class FireTime(Struct, frozen=True, kw_only=True):
    """One theoretical fire time: when it is due, and when it fires after its jitter.

    `excluded` names the exclusion that skips it. `dst` is `gap` or `repeated` if the clock changes
    on that day. Consecutive excluded times may be folded into the first: `until` is then the last
    of them, and `times` their number (0 if there are too many to count).
    """

    due_at: datetime
    fire_at: datetime
    local: str
    excluded: str | None = None
    dst: str | None = None
    until: datetime | None = None
    times: int = 1


class PreviewAnswer(Struct, frozen=True, kw_only=True):
    """The fire times; `note` says why there are none, or why they may not fire."""

    manifest: str
    zone: str
    fires: list[FireTime] = []
    note: str = ""


class ExplainQuestion(Struct, frozen=True, kw_only=True):
    """Ask why a manifest ran or did not run at a time, or for its state now."""

    manifest: ManifestId
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


class ExplainAnswer(Struct, frozen=True, kw_only=True):
    """The explanation in one paragraph, and the ledger entries that it is based on."""

    manifest: str
    text: str
    entries: list[LedgerEntry] = []


class LedgerQuestion(Struct, frozen=True, kw_only=True):
    """Compare fire times with the ledger, one page of manifests at a time."""

    manifest: ManifestId | None = None
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
    """The result of one page; if there is `more`, continue after `last`.

    `unfinished` names manifests with more fire times than one answer compares, and the time from
    which to ask again.
    """

    manifests: int = 0
    fire_times: int = 0
    gaps: list[LedgerGap] = []
    last: str = ""
    more: bool = False
    unfinished: dict[str, datetime] = {}


class ActivationQuestion(Struct, frozen=True, kw_only=True):
    """Ask whether the runs of a manifest may activate these dependents with these inputs."""

    manifest: ManifestId
    activations: Annotated[list[Activation], Meta(min_length=1, max_length=10_000)]


class ActivationAnswer(Struct, frozen=True, kw_only=True):
    """The problems of the activations; all are allowed if there are none."""

    problems: list[str] = []


class ChangeRequest(Request, frozen=True, kw_only=True):
    """Change fields that operators may own; fields that are left out stay unchanged.

    `give_back` names fields that the code owns again; "retry" means attempts and interval.
    """

    manifest: ManifestId
    enabled: bool | UnsetType = UNSET
    attempts: Count | UnsetType = UNSET
    interval_seconds: Seconds | UnsetType = UNSET
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] | UnsetType = UNSET
    give_back: list[ManifestField] = field(default_factory=list)


class TriggerRequest(KeyedRequest, frozen=True, kw_only=True):
    """Run a manifest now, or after a delay, in addition to its schedule.

    `input`, `priority` and `start_within_seconds` replace those of the manifest.
    """

    manifest: ManifestId
    input: Any = UNSET
    delay_seconds: Seconds = 0.0
    priority: Priority | None = None
    start_within_seconds: StartWithin | None = None


class TriggerAnswer(Struct, frozen=True, kw_only=True):
    """The result of a trigger; `text` describes it.

    `queued`; `owed`: it follows the outstanding work; `brought_forward`: the waiting work comes
    first, and no second one is queued; `known`: the key is known, and `work` is the work of the
    first request. `not_used` names parameters of the request that the work brought forward does
    not use, because it keeps its own.
    """

    result: str
    work: UUID | None = None
    text: str = ""
    not_used: list[str] = []


class BackfillRequest(Request, frozen=True, kw_only=True):
    """Queue each occurrence from `since` to `until`, both included, once.

    `missed_only` leaves out occurrences that fired on schedule. `dry_run` only counts. A repeated
    request queues the occurrences that were not backfilled before.
    """

    manifest: ManifestId
    since: datetime
    until: datetime
    missed_only: bool = False
    priority: Priority | None = None
    dry_run: bool = False


class BackfillAnswer(Struct, frozen=True, kw_only=True):
    """The number of occurrences in the range, by result; `text` describes it.

    `queued` ones run one after the other, `known` ones were backfilled before, and `fired` ones
    fired on schedule.
    """

    occurrences: int
    queued: int
    known: int = 0
    fired: int = 0
    text: str = ""


class DeleteRequest(KeyedRequest, frozen=True, kw_only=True):
    """Delete a manifest that no code declares, with its work, dead letters and runs."""

    manifest: ManifestId


class Selection(KeyedRequest, frozen=True, kw_only=True):
    """A request about several manifests: by name, by group, by labels (all must match), or all.

    Exactly one of these must be given.
    """

    manifests: Annotated[list[ManifestId], Meta(max_length=500)] = field(default_factory=list)
    group: Name | None = None
    labels: Annotated[dict[Text, Text], Meta(max_length=30)] = field(default_factory=dict)
    all: bool = False


class ChangeManyRequest(Selection, frozen=True, kw_only=True):
    """Enable, disable or run many manifests; a refused one does not stop the others.

    A group, labels or all are processed in pages, in the order of ids: the next page begins
    `after` the last manifest of the previous one. `dry_run` only lists them.
    """

    action: Literal["enable", "disable", "run"]
    after: Text = ""
    dry_run: bool = False


class ManifestResult(Struct, frozen=True, kw_only=True):
    """The result for one manifest; `text` describes it, or why it was refused."""

    manifest: str
    done: bool
    text: str = ""


class ManyChanged(Struct, frozen=True, kw_only=True):
    """The results, in the order of the request or of the ids.

    If there is `more`, the next page begins after `last`.
    """

    results: list[ManifestResult] = []
    last: str = ""
    more: bool = False


class PauseRequest(Selection, frozen=True, kw_only=True):
    """Start nothing of some manifests from now on, until a time or until they are resumed.

    Pausing a paused manifest changes its end and reason. `dry_run` changes nothing.
    """

    until: datetime | None = None
    reason: Text = ""
    dry_run: bool = False


class PausedManifest(Struct, frozen=True, kw_only=True):
    """A paused manifest, and its first due time without a decision."""

    manifest: str
    paused_at: datetime
    paused_until: datetime | None = None
    reason: str = ""
    next_due_at: datetime | None = None


class PauseAnswer(Struct, frozen=True, kw_only=True):
    """The paused manifests, as many as fit into an answer, and their total number."""

    text: str
    count: int = 0
    manifests: list[PausedManifest] = []
    dry_run: bool = False


class ResumeRequest(Selection, frozen=True, kw_only=True):
    """End the pause of some manifests; their misfire policies decide the missed due times.

    `dry_run` changes nothing and returns what would fire.
    """

    dry_run: bool = False


class ResumedManifest(Struct, frozen=True, kw_only=True):
    """The effect of a pause's end on one manifest; `text` describes it.

    `passed` due times were missed (`passed_or_more`: there are more). The misfire `policy` fires
    the latest of them, listed in `fires`, and `more_fires` before them. `owed` earlier decisions
    run now. `follows` means that it follows a success of its parent during the pause.
    """

    manifest: str
    paused_at: datetime
    reason: str = ""
    policy: str = ""
    passed: int = 0
    passed_or_more: bool = False
    fires: list[datetime] = []
    more_fires: int = 0
    owed: int = 0
    follows: bool = False
    text: str = ""


class ResumeAnswer(Struct, frozen=True, kw_only=True):
    """The resumed manifests, as many as fit into an answer, those that fire first.

    `count` is their total number, and `fires` the number of fires.
    """

    text: str
    count: int = 0
    fires: int = 0
    manifests: list[ResumedManifest] = []
    dry_run: bool = False
