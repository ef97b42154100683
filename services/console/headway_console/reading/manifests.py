"""Manifests: as a list, and one in full with its dependencies."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_contract.fields import ManifestId, Name
from headway_contract.manifests import ManifestAnswer, ManifestStatus
from headway_contract.work import WorkTerms, stored_terms
from headway_decisions.declaring.lookup import deleted_message, missing_message, stored_definition
from headway_decisions.declaring.ownership import manifest_owners
from headway_decisions.firing.manifest_state import Window, hold_of
from headway_decisions.firing.pauses import held_until, open_windows
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing
from headway_errors import Invalid, NotFound
from headway_postgres_kit import Connection, Queries
from msgspec import Struct

from headway_console.reading.lists import Listing, Page, SearchText, Texts, like, read_row

queries = Queries("headway_console.reading", "sql/manifests.sql")

ManifestState = Literal["enabled", "disabled", "paused", "blocked", "outstanding", "troubled"]

_MANIFESTS = Listing("manifests", None, "external_id")
FAMILY = 500
CONNECTED = 1000
_LABELS = 1000
# Number of names that are compared to find a similar one.
_COMPARED_NAMES = 2000

# Settings that only code decides; `retry` has two fields that operators may own.
_CODE_SETTINGS = ("timing", "misfire", "overlap", "input", "labels", "batch")
# Settings that operators may own, where they are not named like their fields.
_OWNED_SETTINGS = {"interval": "interval_seconds", "jitter": "jitter_seconds"}


class ManifestFilter(Struct, frozen=True, kw_only=True):
    """Filters; `text` is searched in id, job, title and group, and a label is `key=value`."""

    text: SearchText | None = None
    group: Name | None = None
    job: Name | None = None
    owner: Name | None = None
    label: Texts = ()
    state: ManifestState | None = None


class LastRun(Struct, frozen=True, kw_only=True):
    """The latest run of a manifest."""

    run: UUID
    state: str
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failure: str | None


class ManifestRow(ManifestStatus, frozen=True, kw_only=True):
    """A manifest in a list; `held_by` is the reason why it does not fire.

    `pauses` are those that hold it, until `paused_until` if all of them end by themselves.
    """

    id: UUID
    title: str
    labels: dict[str, str]
    disabled_by: str | None
    pauses: list[Window]
    paused_until: datetime | None
    last_run: LastRun | None


class Setting(Struct, frozen=True, kw_only=True):
    """One setting and its owner; an operator can reset the field `give_back` to code."""

    name: str
    value: Any
    source: Literal["code", "operator", "api"]
    give_back: str = ""


class Relative(Struct, frozen=True, kw_only=True):
    """A manifest in the graph of dependents; a success of `depends_on` queues it."""

    id: UUID
    external_id: str
    group: str
    held_by: str | None
    depends_on: UUID | None
    dormant: bool
    last_outcome: str | None
    depth: int


class ManifestDetails(Struct, frozen=True, kw_only=True):
    """One manifest: status, settings with their owners, and the input schema of its job."""

    status: ManifestRow
    description: str
    input_schema: dict[str, Any] | None
    takes_input: bool
    settings: list[Setting]
    dead_letters: list[UUID]
    declared_at: datetime
    family: list[Relative]


async def page_of_manifests(
    connection: Connection, filters: ManifestFilter, *, cursor: str | None = None, limit: int = 50
) -> Page[ManifestRow]:
    """List manifests in the order of their ids."""
    labels = {}
    for label in filters.label:
        key, equals, value = label.partition("=")
        if not equals:
            raise Invalid(f"label: {label!r} is not key=value")
        labels[key] = value
    rows = await connection.fetch(
        queries["page"],
        _MANIFESTS.last_name(cursor),
        *(like(filters.text), filters.group, filters.job, filters.owner),
        labels or None,
        filters.state,
        limit + 1,
    )
    return _MANIFESTS.page(rows, limit, manifest_row)


async def read_manifest(connection: Connection, external_id: str) -> ManifestDetails:
    """Return a manifest in full; raises `NotFound`."""
    row = await _find(connection, external_id)
    return read_row(
        ManifestDetails,
        row,
        status=manifest_row(row),
        settings=_settings(row),
        family=await read_family(connection, row["id"]),
    )


async def read_definition(connection: Connection, manifest: ManifestId) -> ManifestAnswer:
    """Show a manifest with its definition and operators' changes."""
    row = await _find(connection, manifest)
    return ManifestAnswer(
        status=msgspec.convert(manifest_row(row), ManifestStatus, from_attributes=True),
        definition=stored_definition(row),
        touched=sorted(row["operator_fields"]),
        sent=row["sent"],
        owners=manifest_owners(row),
    )


async def _find(connection: Connection, external_id: str) -> Any:
    """Return the row of a manifest; raises `NotFound`, with the deletion or a similar name."""
    row = await connection.fetchrow(queries["manifest"], external_id)
    if row is not None:
        return row
    deleted = await connection.fetchrow(queries["deleted"], external_id)
    if deleted is not None:
        raise NotFound(deleted_message(external_id, deleted["occurred_at"], deleted["source"]))
    rows = await connection.fetch(queries["similar_names"], external_id, _COMPARED_NAMES)
    raise NotFound(missing_message(external_id, [row["external_id"] for row in rows]))


async def id_of_filter(
    connection: Connection, manifest: str | None, manifest_id: UUID | None
) -> UUID | None:
    """Return the id of the manifest in filters; an unknown name gets an id that matches nothing."""
    if manifest is None:
        return manifest_id
    return await find_id(connection, manifest) or UUID(int=0)


async def find_id(connection: Connection, external_id: str) -> UUID | None:
    """Return the id of a manifest by its name; `None` if no manifest has it."""
    found: UUID | None = await connection.fetchval(queries["find_id"], external_id)
    return found


async def read_family(connection: Connection, manifest: UUID) -> list[Relative]:
    """Return the tree of dependents of a manifest, at most `FAMILY` of them."""
    rows = await connection.fetch(queries["family"], manifest, FAMILY)
    return [read_row(Relative, row, held_by=hold_of(row)) for row in rows]


async def list_connected(connection: Connection) -> list[list[Relative]]:
    """Return the trees of all dependencies, the longest first, of at most `CONNECTED` manifests."""
    rows = {row["id"]: row for row in await connection.fetch(queries["connected"], CONNECTED)}
    trees: defaultdict[UUID, list[Relative]] = defaultdict(list)
    for row in rows.values():
        root, depth = row, 0
        while root["depends_on"] in rows and depth < len(rows):
            root, depth = rows[root["depends_on"]], depth + 1
        relative = read_row(Relative, row, held_by=hold_of(row), depth=depth)
        trees[root["id"]].append(relative)
    ordered = [
        sorted(tree, key=lambda node: (node.depth, node.external_id)) for tree in trees.values()
    ]
    return sorted(ordered, key=lambda tree: (-tree[-1].depth, -len(tree), tree[0].external_id))


async def list_labels(connection: Connection) -> Sequence[Any]:
    """Return the rows of all labels: key, value and the number of their manifests."""
    return await connection.fetch(queries["labels"], _LABELS)


def manifest_row(row: Any) -> ManifestRow:
    """Make a manifest of its row."""
    last_run = None
    if row["run"] is not None:
        names = LastRun.__struct_fields__[1:]
        last_run = LastRun(run=row["run"], **{name: row[f"run_{name}"] for name in names})
    pauses = open_windows(msgspec.convert(row["pauses"], tuple[Window, ...]))
    return read_row(
        ManifestRow,
        row,
        cadence=_described(row["timing"]),
        zone=row["timing"].get("zone", "UTC"),
        declared=row["undeclared_at"] is None,
        held_by=row["trouble"] or hold_of(row),
        # A pending trigger has a time, and does not fire then while a dead letter blocks it.
        next_fire_at=None if row["blocked_by"] else row["wake_at"],
        pauses=pauses,
        paused_until=held_until(pauses),
        depends_on=row["parent"],
        last_run=last_run,
    )


def _settings(row: Any) -> list[Setting]:
    made: Literal["code", "api"] = "api" if row["owner"] == "api" else "code"
    values = {**row, **stored_terms(row["terms"])}
    names = (*_CODE_SETTINGS, *WorkTerms.__struct_fields__)
    settings = [Setting(name=name, value=values[name], source=made) for name in names]
    for owner in manifest_owners(row):
        is_override = owner.owner == "operator"
        settings.append(
            Setting(
                name=_OWNED_SETTINGS.get(owner.field, owner.field),
                value=owner.value,
                source="operator" if is_override else made,
                give_back=owner.field if is_override else "",
            )
        )
    return settings


def _described(stored: Any) -> str:
    try:
        return timing.describe(msgspec.convert(stored, Timing))
    except (msgspec.ValidationError, ValueError) as error:
        return f"unreadable: {error}"
