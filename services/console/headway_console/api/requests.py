"""What may be asked of the lists."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from headway_contract.control import Text
from headway_contract.dispatching import LetterState, RunStateAsked, WorkStateAsked
from headway_contract.scheduling import ManifestId
from headway_contract.work import Name
from msgspec import Meta, Struct

from headway_console.reading.manifests import ManifestState

Cursor = Annotated[str, Meta(max_length=1000)]
Limit = Annotated[int, Meta(ge=1, le=500)]
Words = Annotated[str, Meta(min_length=1, max_length=200)]
Several = Annotated[tuple[Text, ...], Meta(max_length=50)]


class Paged(Struct, frozen=True, kw_only=True):
    """A list, a page at a time."""

    cursor: Cursor | None = None
    limit: Limit = 100


class ManifestsAsked(Paged, frozen=True, kw_only=True):
    """Manifests; `text` is looked for in names, ids, jobs and groups, a label is `key=value`."""

    text: Words | None = None
    group: Name | None = None
    job: Name | None = None
    owner: Name | None = None
    label: Several = ()
    state: ManifestState | None = None


class GroupsAsked(Paged, frozen=True, kw_only=True):
    """Groups, or the one that is named."""

    name: Name | None = None


class ApplicationsAsked(Paged, frozen=True, kw_only=True):
    """Applications, all of them."""


class WorkAsked(Paged, frozen=True, kw_only=True):
    """Work in a state, or without one all that is not settled; `reason` is why it waits."""

    state: WorkStateAsked | None = None
    group: Name | None = None
    job: Name | None = None
    manifest: ManifestId | None = None
    manifest_id: UUID | None = None
    reason: Text | None = None


class RunsAsked(Paged, frozen=True, kw_only=True):
    """Runs; `text` is looked for among the newest, in inputs and errors."""

    state: RunStateAsked | None = None
    group: Name | None = None
    job: Name | None = None
    manifest: ManifestId | None = None
    manifest_id: UUID | None = None
    work: UUID | None = None
    worker: Text | None = None
    since: datetime | None = None
    before: datetime | None = None
    text: Words | None = None
    text_in: Literal["anywhere", "error", "input"] = "anywhere"


class LettersAsked(Paged, frozen=True, kw_only=True):
    """Dead letters."""

    group: Name | None = None
    job: Name | None = None
    manifest: ManifestId | None = None
    fingerprint: Text | None = None
    state: LetterState | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None


class FailuresAsked(Paged, frozen=True, kw_only=True):
    """Dead letters by what failed."""

    group: Name | None = None
    job: Name | None = None
    manifest: ManifestId | None = None
    state: LetterState = "awaiting"


class WorkersAsked(Paged, frozen=True, kw_only=True):
    """Workers."""

    alive_only: bool = False


class JobsAsked(Paged, frozen=True, kw_only=True):
    """Declared jobs."""

    text: Words | None = None


class EventsAsked(Paged, frozen=True, kw_only=True):
    """Events of history, the newest first; types as in `run.completed` or `run.*`."""

    type: Several = ()
    manifest: ManifestId | None = None
    group: Name | None = None
    job: Name | None = None
    work: UUID | None = None
    run: UUID | None = None
    accepted: bool | None = None
    since: datetime | None = None
    before: datetime | None = None


class AuditAsked(Paged, frozen=True, kw_only=True):
    """What was done and by whom; `people` leaves out what applications declared."""

    actor: Text | None = None
    target: Text | None = None
    action: Several = ()
    people: bool = False
    since: datetime | None = None
    before: datetime | None = None


class OccurrencesAsked(Paged, frozen=True, kw_only=True):
    """What was decided about the times of a manifest, the latest first."""

    manifest: ManifestId


class EnqueuedAsked(Paged, frozen=True, kw_only=True):
    """Enqueued work that waits to be queued, or was refused."""

    refused_only: bool = False


class ManifestQuestion(Struct, frozen=True, kw_only=True):
    """One manifest."""

    manifest: ManifestId


class WorkQuestion(Struct, frozen=True, kw_only=True):
    """One piece of work, by its id or by that of one of its runs."""

    id: UUID


class RunQuestion(Struct, frozen=True, kw_only=True):
    """One run."""

    run: UUID


class LetterQuestion(Struct, frozen=True, kw_only=True):
    """One dead letter, by its id or by that of its work (the latest)."""

    id: UUID


class OccupancyQuestion(Struct, frozen=True, kw_only=True):
    """All groups, or one."""

    group: Name | None = None
