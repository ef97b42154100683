"""Resolve definitions, compare them with the stored manifests, and judge who may declare them."""

from collections.abc import Iterable, Mapping, Sequence
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
from headway_decisions.declaring.app_sources import (
    Application,
    MayDeclare,
    Source,
    Verdict,
    judge_declaration,
)
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection
from msgspec import Struct, structs

from headway_scheduler.store import applications, manifests


class Known(Struct, frozen=True, kw_only=True):
    """A stored manifest."""

    id: UUID
    external_id: str
    owner: str
    definition_hash: str
    timing: Any
    batch: str | None
    disabled_by: str | None
    depends_on: UUID | None


class Comparison(Struct, frozen=True, kw_only=True):
    """The difference between definitions and stored manifests."""

    new: list[ManifestDefinition]
    changed: list[ManifestDefinition]
    unchanged: int
    # Stored manifests of this owner that are not among the definitions.
    gone: list[Known]
    known: dict[str, Known]

    @property
    def retimed(self) -> list[ManifestDefinition]:
        """Return the manifests whose timing is new."""
        return [*self.new, *filter(self.retimes, self.changed)]

    @property
    def written(self) -> list[ManifestDefinition]:
        """Return the manifests that a declaration writes."""
        return [*self.new, *self.changed]

    def retimes(self, definition: ManifestDefinition) -> bool:
        """Return whether the timing of a changed definition differs from the stored one."""
        try:
            stored = msgspec.convert(self.known[definition.external_id].timing, Timing)
        except msgspec.ValidationError:
            return True  # a newer version wrote it, so it cannot be compared
        return bool(stored != definition.timing)


async def judge_source(
    connection: Connection, definitions: Definitions, declares: Source, *, take_over: bool
) -> Verdict:
    """Judge whether this source may declare the application now."""
    if definitions.owner == API_OWNER:
        return MayDeclare()
    row = await connection.fetchrow(applications["read"], definitions.owner)
    known = None if row is None else msgspec.convert(dict(row), Application)
    return judge_declaration(
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
    jobs = await _jobs(connection, {manifest.job for manifest in inheriting} - set(own)) | own
    named = {manifest.external_id for manifest in definitions.manifests}
    rows = await connection.fetch(manifests["inheriting"], list(own))
    stored = [msgspec.convert(row["sent"], ManifestDefinition) for row in rows]
    following = [manifest for manifest in stored if manifest.external_id not in named]
    return Resolved(
        definitions=structs.replace(
            definitions, manifests=tuple(_filled(definitions.manifests, jobs))
        ),
        followers=list(_filled(following, jobs)),
        sent={manifest.external_id: manifest for manifest in (*inheriting, *following)},
    )


def _filled(
    found: Iterable[ManifestDefinition], jobs: Mapping[str, JobDefinition]
) -> Iterable[ManifestDefinition]:
    """Fill in the terms of jobs; `refuse_problems` reports undeclared jobs."""
    for manifest in found:
        job = jobs.get(manifest.job)
        yield manifest if job is None else manifest.with_terms_of(job)


async def _jobs(connection: Connection, names: set[str]) -> dict[str, JobDefinition]:
    if not names:
        return {}
    rows = await connection.fetch(manifests["jobs"], list(names))
    return {
        row["name"]: JobDefinition(name=row["name"], terms=msgspec.convert(row["terms"], JobTerms))
        for row in rows
    }


async def compare(
    connection: Connection,
    definitions: Definitions,
    followers: Sequence[ManifestDefinition] = (),
) -> Comparison:
    """Compare definitions and followers with the stored manifests."""
    rows = await connection.fetch(
        manifests["declared_by"],
        definitions.owner,
        [manifest.external_id for manifest in (*definitions.manifests, *followers)],
    )
    known = {
        row["external_id"]: Known(
            id=row["id"],
            external_id=row["external_id"],
            owner=row["owner"],
            definition_hash=row["definition_hash"],
            timing=row["timing"],
            batch=row["batch"],
            disabled_by=row["disabled_by"],
            depends_on=row["depends_on"],
        )
        for row in rows
    }
    new = [manifest for manifest in definitions.manifests if manifest.external_id not in known]
    own, following = (
        [manifest for manifest in found if _differs(manifest, known)]
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


def _differs(manifest: ManifestDefinition, known: Mapping[str, Known]) -> bool:
    """Return whether a manifest is stored with another definition."""
    stored = known.get(manifest.external_id)
    return stored is not None and stored.definition_hash != manifest.fingerprint()
