"""Terms that manifests take from their job, because whoever made them did not state them.

The scheduler fills them in when the manifest is declared, and again when the job is declared
with other terms: so a row always holds what is in force.
"""

from collections.abc import Iterable, Mapping

import msgspec
from headway.define.definitions import Definitions, JobDefinition, JobTerms, ManifestDefinition
from headway_postgres_kit import Connection
from msgspec import Struct, structs

from headway_scheduler.store import manifests


class Resolved(Struct, frozen=True, kw_only=True):
    """Definitions with every term filled in, and how those were sent that take some from a job.

    `followers` are stored manifests of the declared jobs, which belong to others.
    """

    definitions: Definitions
    followers: list[ManifestDefinition]
    sent: dict[str, ManifestDefinition]


async def resolve(connection: Connection, definitions: Definitions) -> Resolved:
    """Fill in what manifests take from their jobs, and that of stored ones which follow."""
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
    """Manifests with the terms of their jobs; an undeclared job is a problem told elsewhere."""
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
