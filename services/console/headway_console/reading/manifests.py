"""Manifests and jobs: lists of them, and one manifest in full."""

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract.scheduling import ManifestAnswer, ManifestStatus
from headway_contract.work import RetryPolicy, WorkTerms, stored_terms
from headway_decisions.declaring.lookup import (
    deleted_message,
    missing_message,
    stored_definition,
)
from headway_decisions.declaring.ownership import manifest_owners
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.pages import Page, like, name_of, page_of

queries = Queries("headway_console.reading", "sql/manifests.sql")

ManifestState = Literal["enabled", "disabled", "paused", "blocked", "outstanding", "troubled"]

_LIST, _JOBS = "manifests", "jobs"
_FAMILY = 500
_LABELS = 1000
# Among how many names to look for a similar one.
_COMPARED_NAMES = 2000

# The settings of a manifest that code alone decides; `retry` has two fields that operators may own.
_CODE_SETTINGS = (
    *("timing", "misfire", "overlap", "input", "labels", "batch", *WorkTerms.__struct_fields__),
)
# The settings that operators may own, by the names of their fields.
_OWNED_SETTINGS = {
    "enabled": "enabled",
    "attempts": "attempts",
    "interval": "interval_seconds",
    "jitter": "jitter_seconds",
}


class ManifestFilter(Struct, frozen=True, kw_only=True):
    """Which manifests are meant; what is left out does not matter.

    `text` is looked for in the name, the id, the job with its title, and the group.
    """

    text: str | None = None
    group: str | None = None
    job: str | None = None
    owner: str | None = None
    labels: dict[str, str] = {}
    state: ManifestState | None = None


class LastRun(Struct, frozen=True, kw_only=True):
    """The latest run of a manifest."""

    run: UUID
    state: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failure: str | None


class ManifestRow(Struct, frozen=True, kw_only=True):
    """A manifest in a list. `held_by` says what keeps it from firing, if anything does."""

    id: UUID
    external_id: str
    title: str
    owner: str
    job: str
    group: str
    labels: dict[str, str]
    cadence: str
    zone: str
    enabled: bool
    disabled_by: str | None
    declared: bool
    held_by: str | None
    blocked_by: UUID | None
    paused_until: datetime | None
    pause_reason: str
    outstanding: int
    owed: int
    next_due_at: datetime | None
    next_fire_at: datetime | None
    last_outcome: str | None
    last_settled_at: datetime | None
    success_number: int
    depends_on: str | None
    dormant: bool
    last_run: LastRun | None


class Setting(Struct, frozen=True, kw_only=True):
    """One setting, and whose it is: the code's, an operator's (`yours`), or made at run time.

    `give_back` names the field that an operator gives back to the code, and `command` does it.
    """

    name: str
    value: Any
    source: Literal["code", "yours", "api"]
    give_back: str = ""
    command: str = ""


class Relative(Struct, frozen=True, kw_only=True):
    """A manifest in the graph of dependents."""

    id: UUID
    external_id: str
    job: str
    group: str
    held_by: str | None
    dormant: bool
    last_outcome: str | None
    next_due_at: datetime | None
    depth: int


class Edge(Struct, frozen=True, kw_only=True):
    """A success of `parent` queues `child`; a dormant child waits to be woken by its run."""

    parent: UUID
    child: UUID
    dormant: bool


class Family(Struct, frozen=True, kw_only=True):
    """All that a manifest hangs together with; `more` if it is too much to draw."""

    nodes: list[Relative]
    edges: list[Edge]
    more: bool = False


class ManifestInFull(Struct, frozen=True, kw_only=True):
    """One manifest: how it stands, what it is set to and by whom, and what its job takes."""

    status: ManifestRow
    description: str
    category: str
    input_schema: dict[str, Any] | None
    takes_input: bool
    settings: list[Setting]
    touched: list[str]
    dead_letters: list[UUID]
    declared_at: datetime
    family: Family


class Label(Struct, frozen=True, kw_only=True):
    """A label, and how many manifests have it."""

    key: str
    value: str
    manifests: int


class JobRow(Struct, frozen=True, kw_only=True):
    """A job: its limits, what of them is in use, and how many live workers serve it.

    `touched` are the limits that an operator has set; `attempts` is what its work gets of which
    neither a manifest nor an operator says otherwise. Since `retired_at` no application declares
    it.
    """

    name: str
    owner: str
    title: str
    description: str
    category: str
    input_schema: dict[str, Any] | None
    takes_input: bool
    max_active: int | None
    rate: Any
    batch: int
    manifests: int
    workers: int
    attempts: int
    touched: list[str] = []
    active: int = 0
    retired_at: datetime | None = None


async def page_of_manifests(
    connection: Connection, asked: ManifestFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[ManifestRow]:
    """A page of manifests, in the order of their names."""
    rows = await connection.fetch(
        queries["page"],
        name_of(_LIST, cursor),
        *(like(asked.text), asked.group, asked.job, asked.owner),
        asked.labels or None,
        asked.state,
        limit + 1,
    )
    return page_of(_LIST, rows, limit, manifest_row, None, "external_id")


async def read_manifest(connection: Connection, external_id: str) -> ManifestInFull | None:
    """One manifest in full; none if there is no such one."""
    row = await connection.fetchrow(queries["manifest"], external_id)
    if row is None:
        return None
    return ManifestInFull(
        status=manifest_row(row),
        settings=_settings(row),
        touched=sorted(row["touched"]),
        dead_letters=list(row["dead_letters"]),
        family=await read_family(connection, row["id"]),
        **{
            name: row[name]
            for name in ("description", "category", "input_schema", "takes_input", "declared_at")
        },
    )


async def read_definition(connection: Connection, external_id: str) -> ManifestAnswer | None:
    """Return a manifest with its definition and owners; `None` if no manifest has the name."""
    row: Any = await connection.fetchrow(queries["manifest"], external_id)
    if row is None:
        return None
    return ManifestAnswer(
        status=msgspec.convert(manifest_row(row), ManifestStatus, from_attributes=True),
        definition=stored_definition(row),
        touched=sorted(row["touched"]),
        sent=row["sent"],
        owners=manifest_owners(row),
    )


async def why_missing(connection: Connection, external_id: str) -> str:
    """Return why no manifest has a name: it was deleted, or is spelled otherwise."""
    deleted = await connection.fetchrow(queries["deleted"], external_id)
    if deleted is not None:
        return deleted_message(external_id, deleted["occurred_at"], deleted["source"])
    rows = await connection.fetch(queries["similar_names"], external_id, _COMPARED_NAMES)
    return missing_message(external_id, [row["external_id"] for row in rows])


async def find_id(connection: Connection, external_id: str) -> UUID | None:
    """The id of a manifest by its name; none if there is no such one."""
    found: UUID | None = await connection.fetchval(queries["find_id"], external_id)
    return found


async def read_family(connection: Connection, manifest: UUID) -> Family:
    """The tree of dependents that a manifest is in."""
    rows = await connection.fetch(queries["family"], manifest, _FAMILY)
    known = {row["id"] for row in rows}
    return Family(
        nodes=[_relative(row) for row in rows],
        edges=[
            Edge(parent=row["depends_on"], child=row["id"], dormant=row["dormant"])
            for row in rows
            if row["depends_on"] in known
        ],
        more=len(rows) >= _FAMILY,
    )


async def list_labels(connection: Connection) -> list[Label]:
    """The labels that there are."""
    rows = await connection.fetch(queries["labels"], _LABELS)
    return [Label(**dict(row)) for row in rows]


async def page_of_jobs(
    connection: Connection,
    *,
    heard_since: datetime,
    text: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[JobRow]:
    """A page of jobs, in the order of their names; workers heard since then are alive."""
    rows = await connection.fetch(
        queries["jobs"], name_of(_JOBS, cursor), like(text), heard_since, limit + 1
    )
    return page_of(_JOBS, rows, limit, _job_row, None, "name")


def _job_row(row: Any) -> JobRow:
    """Read a job; terms that equal the default are not stored."""
    return JobRow(**{**dict(row), "attempts": row["attempts"] or RetryPolicy().attempts})


def held_by(row: Any) -> str | None:
    """What keeps a manifest from firing; the widest reason is the one to tell."""
    if row["job_retired_at"] is not None:
        return "job_retired"
    if not row["group_enabled"]:
        return "group_disabled"
    if not row["enabled"]:
        return "manifest_disabled"
    if row["paused_at"] is not None and row["resumed_at"] is None:
        return "paused"
    return None if row["blocked_by"] is None else "blocked_by_dead_letter"


def manifest_row(row: Any) -> ManifestRow:
    """A manifest out of its row."""
    return ManifestRow(
        group=row["group_name"],
        cadence=_described(row["timing"]),
        zone=row["timing"].get("zone", "UTC"),
        declared=row["undeclared_at"] is None,
        held_by=row["trouble"] or held_by(row),
        next_fire_at=row["wake_at"],
        pause_reason=row["pause_reason"] if held_by(row) == "paused" else "",
        depends_on=row["parent"],
        last_run=_last_run(row),
        **{
            name: row[name]
            for name in (
                *("id", "external_id", "title", "owner", "job", "labels", "enabled"),
                *(
                    "disabled_by",
                    "blocked_by",
                    "paused_until",
                    "outstanding",
                    "owed",
                    "next_due_at",
                ),
                *("last_outcome", "last_settled_at", "success_number", "dormant"),
            )
        },
    )


def _last_run(row: Any) -> LastRun | None:
    if row["run"] is None:
        return None
    return LastRun(
        run=row["run"],
        **{
            name: row[f"run_{name}"]
            for name in ("state", "created_at", "started_at", "finished_at", "failure")
        },
    )


def _settings(row: Any) -> list[Setting]:
    made: Literal["code", "api"] = "api" if row["owner"] == "api" else "code"
    values = {**row, **stored_terms(row["terms"])}
    settings = [Setting(name=name, value=values[name], source=made) for name in _CODE_SETTINGS]
    for owner in manifest_owners(row):
        yours = owner.owner == "operator"
        setting = Setting(
            name=_OWNED_SETTINGS[owner.field],
            value=owner.value,
            source="yours" if yours else made,
            give_back=owner.field if yours else "",
            command=owner.give_back,
        )
        settings.append(setting)
    return settings


def _relative(row: Any) -> Relative:
    return Relative(
        group=row["group_name"],
        held_by=held_by(row),
        **{
            name: row[name]
            for name in (
                *("id", "external_id", "job", "dormant", "last_outcome", "next_due_at", "depth"),
            )
        },
    )


def _described(stored: Any) -> str:
    try:
        return timing.describe(msgspec.convert(stored, Timing))
    except (msgspec.ValidationError, ValueError) as error:
        return f"unreadable: {error}"
