"""Questions and requests to the scheduler. They travel on core NATS, unwrapped.

A request that is refused is answered with an error that says why; several reasons stand
on a line each. Every request that changes something names its actor, for the audit.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType

from headway_contract.control import Text
from headway_contract.lifecycle import Activation
from headway_contract.work import Name, Priority, Rate, Seconds

# Without NUL characters, which PostgreSQL does not store, so that nothing has one.
ManifestId = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*$")]
Days = Annotated[int, Meta(ge=0, le=3660)]

# What becomes of manifests that their application no longer declares.
PrunePolicy = Literal["delete", "disable", "keep"]


# Fields of a manifest that an operator can give back to the code.
ManifestField = Literal["enabled", "attempts", "interval", "jitter", "retry"]


class ManifestStatus(Struct, frozen=True, kw_only=True):
    """How a manifest stands. `held_by` says what keeps it from firing, if anything does."""

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
    """Who decides about one field. `give_back` is the command that returns it to the code.

    `default` means that neither an operator nor an application states it; `api`, that the
    manifest was made at run time.
    """

    field: str
    value: Any
    owner: Literal["operator", "code", "api", "default"]
    application: str = ""
    give_back: str = ""


class ManifestAnswer(Struct, frozen=True, kw_only=True):
    """One manifest: how it stands, how it is defined, and what operators have changed.

    One that takes terms from its job has been `sent` with less; that names them as `inherited`.
    """

    status: ManifestStatus
    definition: dict[str, Any]
    touched: list[str] = []
    sent: dict[str, Any] | None = None
    owners: list[FieldOwner] = []


class GroupStatus(Struct, frozen=True, kw_only=True):
    """How a group stands."""

    name: str
    max_active: int | None = None
    priority: int = 0
    enabled: bool = True
    manifests: int = 0
    touched: list[str] = []
    rate: Rate | None = None
    owners: list[FieldOwner] = []


class PreviewQuestion(Struct, frozen=True, kw_only=True):
    """When will a manifest fire? From `after` on, or from now.

    `count` are times that fire; excluded ones between them are folded. With `each` every due
    time counts and is told by itself, excluded or not.
    """

    manifest: ManifestId
    count: Annotated[int, Meta(ge=1, le=1000)] = 20
    after: datetime | None = None
    each: bool = False


class FireTime(Struct, frozen=True, kw_only=True):
    """One theoretical fire time: when it is due, when its jitter lets it go, what is odd.

    `excluded` names the exclusion that will skip it. `dst` says that the clock jumps there:
    `gap` or `repeated`. Excluded times that follow each other may be folded into their first:
    `until` is then the last of them, and `times` how many they are (0 if too many to count).
    """

    due_at: datetime
    fire_at: datetime
    local: str
    excluded: str | None = None
    dst: str | None = None
    until: datetime | None = None
    times: int = 1


class PreviewAnswer(Struct, frozen=True, kw_only=True):
    """The fire times; `note` says why there are none, or why they may not come."""

    manifest: str
    zone: str
    fires: list[FireTime] = []
    note: str = ""


class ExplainQuestion(Struct, frozen=True, kw_only=True):
    """Why did a manifest run, or not? At a time, or how does it stand now."""

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
    """The answer in one paragraph, and the entries of the ledger that it rests on."""

    manifest: str
    text: str
    entries: list[LedgerEntry] = []


class LedgerQuestion(Struct, frozen=True, kw_only=True):
    """Compare what should have fired with what the ledger tells, a page of manifests at a time."""

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
    """What one page came to; go on after `last` if there is more.

    `unfinished` names manifests with more fire times than one answer compares, and since when
    to ask about each of them again.
    """

    manifests: int = 0
    fire_times: int = 0
    gaps: list[LedgerGap] = []
    last: str = ""
    more: bool = False
    unfinished: dict[str, datetime] = {}


class ActivationQuestion(Struct, frozen=True, kw_only=True):
    """May the runs of this manifest wake these dependents with these inputs?"""

    manifest: ManifestId
    activations: Annotated[list[Activation], Meta(min_length=1, max_length=10_000)]


class ActivationAnswer(Struct, frozen=True, kw_only=True):
    """What is wrong with them; nothing means that all of them may be woken."""

    problems: list[str] = []


class ApplyRequest(Struct, frozen=True, kw_only=True):
    """Store definitions, all or none; or only tell what that would change (a plan).

    `definitions` is their JSON, compressed with zlib. `days` is how far a plan looks ahead. With a
    `key` they are stored once, and answered alike for a week. An application that its code declares
    is refused, unless they `take_over`: from then on its code declares nothing.
    """

    definitions: bytes
    prune: PrunePolicy | None = None
    days: Days = 7
    take_over: bool = False
    actor: Text = ""
    key: Text | None = None


class FireChange(Struct, frozen=True, kw_only=True):
    """Fire times of one manifest that appear and vanish.

    `appear` and `vanish` list the first of them; `appearing`, `vanishing` and `unchanged` count.
    If `compared_until` is set, later times were not compared, because there are too many.
    """

    manifest: str
    zone: str
    appear: list[FireTime] = []
    vanish: list[FireTime] = []
    appearing: int = 0
    vanishing: int = 0
    unchanged: int = 0
    compared_until: datetime | None = None


class FiresLeftOut(Struct, frozen=True, kw_only=True):
    """Manifests that a plan does not list, by how many they are.

    Fire times of `changing` ones change, too (so many appear and vanish in all); `not_compared`
    ones were too many to be compared.
    """

    changing: int = 0
    appearing: int = 0
    vanishing: int = 0
    not_compared: int = 0


class ApplyAnswer(Struct, frozen=True, kw_only=True):
    """What was changed, or what would be. `stale`: a newer generation is declared already.

    `refused` says in a plan why applying would be refused, if it would be.
    `left_out` tells of the manifests for which there was no room in `fires`, if there are any.
    """

    owner: str
    created: list[str] = []
    changed: list[str] = []
    unchanged: int = 0
    pruned: list[str] = []
    disabled: list[str] = []
    fires: list[FireChange] = []
    warnings: list[str] = []
    stale: bool = False
    refused: str = ""
    left_out: FiresLeftOut | None = None


class ChangeRequest(Struct, frozen=True, kw_only=True):
    """An operator changes what operators own; a field that is not named stays as it is.

    `give_back` names fields that the code is to own again; "retry" stands for attempts and
    interval.
    """

    manifest: ManifestId
    enabled: bool | UnsetType = UNSET
    attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    interval_seconds: Seconds | UnsetType = UNSET
    jitter_seconds: Annotated[float, Meta(ge=0, le=86_400)] | UnsetType = UNSET
    give_back: list[ManifestField] = []
    actor: Text = ""


class ChangeGroupRequest(Struct, frozen=True, kw_only=True):
    """An operator changes the limits of a group; none for `max_active` or `rate` lifts it."""

    group: Name
    max_active: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType | None = UNSET
    priority: Priority | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    rate: Rate | UnsetType | None = UNSET
    give_back: list[Literal["max_active", "priority", "enabled", "rate"]] = []
    actor: Text = ""


class ChangeJobRequest(Struct, frozen=True, kw_only=True):
    """An operator changes the limits of a job; none lifts one.

    What is given back is what the job's code says, at once.
    """

    job: Name
    max_active: Annotated[int, Meta(ge=0, le=1_000_000)] | UnsetType | None = UNSET
    rate: Rate | UnsetType | None = UNSET
    give_back: list[Literal["max_active", "rate"]] = []
    actor: Text = ""


class TriggerRequest(Struct, frozen=True, kw_only=True):
    """Run a manifest now, or after a delay, beside its schedule.

    The same `key` triggers only once; with other parameters than the first time it is refused.
    An `input` takes the place of the manifest's own, and so do a `priority` and within how many
    seconds it must have begun.
    """

    manifest: ManifestId
    key: Text | None = None
    input: Any = UNSET
    delay_seconds: Seconds = 0.0
    priority: Priority | None = None
    start_within_seconds: Annotated[float, Meta(gt=0, le=10 * 366 * 86_400)] | None = None
    actor: Text = ""


class TriggerAnswer(Struct, frozen=True, kw_only=True):
    """What became of a trigger; `text` says it in words.

    `queued`, `owed` (it follows the work under way), `brought_forward` (no second one was
    queued, but the one that waits comes first), or `known` (the same key came before: `work` is
    the one that was named then). `not_used` names what the request stated of its work and what
    was brought forward does not have: that keeps its own `input`, `priority`, `start_within`.
    """

    result: str
    work: UUID | None = None
    text: str = ""
    not_used: list[str] = []


class BackfillRequest(Struct, frozen=True, kw_only=True):
    """Queue the occurrences of a past range, `since` and `until` included, each once.

    With `missed_only` those that fired on schedule are left out. `dry_run` only counts. Sent again,
    it queues what was not backfilled before.
    """

    manifest: ManifestId
    since: datetime
    until: datetime
    missed_only: bool = False
    priority: Priority | None = None
    dry_run: bool = False
    actor: Text = ""


class BackfillAnswer(Struct, frozen=True, kw_only=True):
    """How many occurrences the range has, and what became of them; `text` says it in words.

    `queued` are new; they run one after the other. `known` were backfilled before, `fired` had
    fired on schedule.
    """

    occurrences: int
    queued: int
    known: int = 0
    fired: int = 0
    text: str = ""


class EnqueueRequest(Struct, frozen=True, kw_only=True):
    """Queue work of a declared job, without a manifest.

    What is not stated is the job's. The same `key` of a job gives the same work again, and is
    refused with other parameters.
    """

    job: Name
    input: Any = None
    group: Name | None = None
    priority: Priority | None = None
    delay_seconds: Seconds | None = None
    not_before: datetime | None = None
    start_by: datetime | None = None
    key: Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*$")] | None = None
    traceparent: Text | None = None
    actor: Text = ""


class EnqueueAnswer(Struct, frozen=True, kw_only=True):
    """It will be queued; its id is the same for as long as its key is remembered."""

    work: UUID
    text: str = ""


class EnqueuedStatus(Struct, frozen=True, kw_only=True):
    """What was enqueued: it is `waiting` to be taken up, or `refused`, and why."""

    work: UUID
    job: str
    key: str | None = None
    group: str | None = None
    enqueued_by: str = ""
    enqueued_at: datetime
    state: str
    reason: str | None = None


class DismissRequest(Struct, frozen=True, kw_only=True):
    """Forget work that was enqueued and refused; its key may then be used again."""

    work: UUID
    actor: Text = ""


class DeleteRequest(Struct, frozen=True, kw_only=True):
    """Delete a manifest that no code declares, with its work, dead letters and runs.

    It was made at run time, or its application has dropped it and it was kept. With a `key` it is
    done once, and answered alike for a week: also if there is another manifest of that name by
    then.
    """

    manifest: ManifestId
    actor: Text = ""
    key: Text | None = None


class InputQuestion(Struct, frozen=True, kw_only=True):
    """Would this job take this input?

    Whoever names a group means work in it, of a manifest if it has one, and is told its key.
    """

    job: Name
    input: Any = None
    manifest_id: UUID | None = None
    group: Name | None = None


class InputAnswer(Struct, frozen=True, kw_only=True):
    """What is wrong with it, or nothing. A job that nobody declared (`known`) takes any.

    `concurrency_key` is that of the work which was meant; it is left out where nobody can tell.
    """

    problem: str = ""
    known: bool = True
    concurrency_key: str | UnsetType | None = UNSET


class CancelOutstandingRequest(Struct, frozen=True, kw_only=True):
    """End all work of a manifest or a group early, or one piece of work.

    It reaches also what is on its way to the dispatcher. Answered with a `CancelAnswer`. With a
    `key` it is done once, and answered alike for a week.
    """

    manifest: ManifestId | None = None
    group: Name | None = None
    work: UUID | None = None
    reason: Annotated[str, Meta(max_length=1000, pattern=r"^[^\x00]*$")] = ""
    actor: Text = ""
    key: Text | None = None


class Changed(Struct, frozen=True, kw_only=True):
    """It is done; `text` says what."""

    text: str
