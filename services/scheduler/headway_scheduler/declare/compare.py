"""Compare definitions with the stored manifests: terms, differences, owners, audit data."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import (
    API_OWNER,
    Definitions,
    JobDefinition,
    JobTerms,
    ManifestDefinition,
)
from headway_contract.definitions import ApplyAnswer
from headway_decisions.declaring import app_sources
from headway_decisions.declaring.lookup import stored_definition
from headway_decisions.declaring.ownership import RETRY_FIELDS, manifest_owners
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection
from msgspec import Struct, structs

from headway_scheduler.store import applications, manifests

# Fields that operators may own, and the column that holds each; those of a retry policy are apart.
_OPERATOR_COLUMNS = {"enabled": "enabled", "jitter": "jitter_seconds"}


class Known(Struct, frozen=True, kw_only=True):
    """A stored manifest."""

    id: UUID
    external_id: str
    owner: str
    definition_hash: str
    timing: Any
    batch: str | None
    depends_on: UUID | None


def names_of(manifests: Sequence[Known | ManifestDefinition]) -> list[str]:
    """Return the external ids of manifests, sorted."""
    return sorted(manifest.external_id for manifest in manifests)


class Comparison(Struct, frozen=True, kw_only=True):
    """The difference between definitions and stored manifests."""

    new: list[ManifestDefinition]
    changed: list[ManifestDefinition]
    unchanged: int
    # Stored manifests of this owner that are not among the definitions.
    gone: list[Known]
    known: dict[str, Known]

    @property
    def moved(self) -> list[ManifestDefinition]:
        """Return the changed manifests whose timing is new."""
        return list(filter(self.retimes, self.changed))

    @property
    def retimed(self) -> list[ManifestDefinition]:
        """Return the manifests whose timing is new."""
        return list(filter(self.retimes, self.written))

    @property
    def written(self) -> list[ManifestDefinition]:
        """Return the manifests that a declaration writes."""
        return [*self.new, *self.changed]

    def answer(self, owner: str) -> ApplyAnswer:
        """Return the manifests of each kind; the caller adds the rest of the answer."""
        moved = names_of(self.moved)
        return ApplyAnswer(
            owner=owner,
            created=names_of(self.new),
            changed=sorted({*names_of(self.changed)} - {*moved}),
            moved=moved,
            unchanged=self.unchanged,
        )

    def retimes(self, definition: ManifestDefinition) -> bool:
        """Return whether the timing of a definition differs from the stored one."""
        known = self.known.get(definition.external_id)
        try:
            stored = None if known is None else msgspec.convert(known.timing, Timing)
        except msgspec.ValidationError:
            return True  # a newer version wrote it, so it cannot be compared
        return bool(stored != definition.timing)


async def judge_source(
    connection: Connection,
    definitions: Definitions,
    declares: app_sources.Source,
    *,
    take_over: bool,
) -> app_sources.Verdict:
    """Judge whether this source may declare the application now."""
    if definitions.owner == API_OWNER:
        return app_sources.MayDeclare()
    row = await connection.fetchrow(applications["read"], definitions.owner)
    known = None if row is None else msgspec.convert(dict(row), app_sources.Application)
    return app_sources.judge_declaration(
        known, source=declares, generation=definitions.generation, take_over=take_over
    )


class Resolved(Struct, frozen=True, kw_only=True):
    """Definitions with all terms, and the manifests that inherit some as they were `sent`.

    A manifest inherits the terms that it does not state from its job. They are filled in when the
    manifest or its job is declared, so a stored row has the terms in force. `followers` are stored
    manifests of other owners that inherit from the declared jobs.
    """

    definitions: Definitions
    followers: list[ManifestDefinition]
    sent: dict[str, ManifestDefinition]


async def resolve(connection: Connection, definitions: Definitions) -> Resolved:
    """Fill in the terms that manifests and stored followers inherit from their jobs."""
    inheriting = [manifest for manifest in definitions.manifests if manifest.inherited]
    own = {job.name: job for job in definitions.jobs}
    foreign = {manifest.job for manifest in inheriting} - set(own)
    rows = await connection.fetch(manifests["jobs"], list(foreign)) if foreign else []
    jobs = own | {
        row["name"]: JobDefinition(name=row["name"], terms=msgspec.convert(row["terms"], JobTerms))
        for row in rows
    }
    named = {manifest.external_id for manifest in definitions.manifests}
    rows = await connection.fetch(manifests["inheriting"], list(own))
    stored = [msgspec.convert(row["sent"], ManifestDefinition) for row in rows]
    following = [manifest for manifest in stored if manifest.external_id not in named]

    def fill(manifest: ManifestDefinition) -> ManifestDefinition:
        # `refuse_problems` reports undeclared jobs.
        job = jobs.get(manifest.job)
        return manifest if job is None else manifest.with_terms_of(job)

    return Resolved(
        definitions=structs.replace(definitions, manifests=tuple(map(fill, definitions.manifests))),
        followers=list(map(fill, following)),
        sent={manifest.external_id: manifest for manifest in (*inheriting, *following)},
    )


async def compare(
    connection: Connection, definitions: Definitions, followers: Sequence[ManifestDefinition] = ()
) -> Comparison:
    """Compare definitions and followers with the stored manifests."""
    rows = await connection.fetch(
        manifests["declared_by"],
        definitions.owner,
        [manifest.external_id for manifest in (*definitions.manifests, *followers)],
    )
    known = {row["external_id"]: Known(**dict(row)) for row in rows}
    new = [manifest for manifest in definitions.manifests if manifest.external_id not in known]
    own, following = (
        [
            manifest
            for manifest in found
            if (stored := known.get(manifest.external_id)) is not None
            and stored.definition_hash != manifest.fingerprint()
        ]
        for found in (definitions.manifests, followers)
    )
    named = {manifest.external_id for manifest in definitions.manifests}
    return Comparison(
        new=new,
        changed=[*own, *following],
        unchanged=len(definitions.manifests) - len(new) - len(own),
        gone=[
            stored
            for stored in known.values()
            if stored.external_id not in named and stored.owner == definitions.owner
        ],
        known=known,
    )


def stored_definitions(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored definitions without the fields that code does not decide."""
    found = {}
    for row in rows.values():
        kept = {
            _OPERATOR_COLUMNS[name] for name in row["operator_fields"] if name in _OPERATOR_COLUMNS
        }
        if row["disabled_by"] not in (None, "code"):
            kept.add("enabled")
        stored = {name: value for name, value in stored_definition(row).items() if name not in kept}
        owned = {RETRY_FIELDS[name] for name in row["operator_fields"] if name in RETRY_FIELDS}
        retry = stored["retry"]
        stored["retry"] = {name: retry[name] for name in retry if name not in owned}
        found[row["external_id"]] = stored
    return found


def kept_messages(definitions: Sequence[ManifestDefinition], rows: Mapping[str, Any]) -> list[str]:
    """Name each field of changed definitions that stays as an operator set it."""
    messages = []
    for manifest in definitions:
        row = rows[manifest.external_id]
        wanted = {
            "enabled": manifest.enabled,
            "attempts": manifest.retry.attempts,
            "interval": manifest.retry.interval_seconds,
            "jitter": manifest.jitter_seconds,
        }
        if row["disabled_by"] in ("pruned", "once"):
            # A declaration enables it although an operator owns the field.
            del wanted["enabled"]
        messages += [
            f"manifest {manifest.external_id!r}: {owner.field} stays {owner.value} as an operator "
            f"set it, and the code says {wanted[owner.field]}: to let the code decide, run "
            f"'{owner.give_back}'"
            for owner in manifest_owners(row)
            if owner.owner == "operator" and wanted.get(owner.field, owner.value) != owner.value
        ]
    return messages


def audited_definition(definition: ManifestDefinition, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the audit data of a declared manifest: the definition, and the one before.

    Fields that have their default before and after are left out.
    """
    data: dict[str, Any] = msgspec.to_builtins(definition)
    known = stored.get(definition.external_id)
    if known is None:
        return data
    fields = {name: getattr(definition, name) for name in definition.__struct_fields__}
    # Through JSON, as it is stored: tuples become lists.
    now = msgspec.json.decode(msgspec.json.encode(fields))
    # Fields of the retry policy that an operator owns are not part of the change.
    known = {**known, "retry": {**now["retry"], **known["retry"]}}
    before = {
        name: known.get(name, value)
        for name, value in now.items()
        if name in data or known.get(name, value) != value
    }
    return {**data, "before": before}
