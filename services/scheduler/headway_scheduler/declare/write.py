"""Write the jobs and manifests of a declaration."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway_contract.work import terms_of
from headway_decisions.firing import identity, manifest_state
from headway_postgres_kit import Connection, json_array

from headway_scheduler.declare.compare import Comparison
from headway_scheduler.declare.one_shots import first_due, past_shots
from headway_scheduler.fire.manifest import LedgerRow
from headway_scheduler.fire.outbound_events import announce_job
from headway_scheduler.fire.record import write_ledger
from headway_scheduler.store import OUTBOX, audit, manifests, occurrences


async def write_jobs(
    connection: Connection, definitions: Definitions, source: str, now: datetime
) -> list[str]:
    """Write jobs, retire jobs that no application declares, and announce all; returns retired ones.

    Each declaration announces all limits again, in case a message was lost.
    """
    jobs = [msgspec.structs.asdict(job) for job in definitions.jobs]
    names = [job.name for job in definitions.jobs]
    if jobs:
        await connection.execute(manifests["upsert_job"], jobs, definitions.owner, now)
    retired: list[str] = []
    if definitions.owner != API_OWNER:
        dropped = await connection.fetch(manifests["retire_jobs"], definitions.owner, names, now)
        retired = [row["name"] for row in dropped if row["retired_at"] is not None]
        entries = [(name, {"application": definitions.owner}) for name in retired]
        await audit(connection, "headway.job.retired.v1", source, entries, now=now)
    rows = await connection.fetch(manifests["job_limits"], [*names, *retired])
    await OUTBOX.add(connection, [announce_job(row, now=now) for row in rows])
    return retired


async def write_manifests(
    connection: Connection,
    definitions: Definitions,
    compared: Comparison,
    ids: dict[str, UUID],
    sent: Mapping[str, ManifestDefinition],
    now: datetime,
) -> None:
    """Insert new manifests, update changed ones, and store new timings."""
    new, changed = (
        [
            {
                **_row(manifest, ids[manifest.external_id], now),
                "sent": sent.get(manifest.external_id),
                "retimed": compared.retimes(manifest),
            }
            for manifest in written
        ]
        for written in (compared.new, compared.changed)
    )
    retimed = [row for row in (*new, *changed) if row["retimed"]]
    if new:
        await connection.execute(manifests["insert_manifest"], new, definitions.owner, now)
    if changed:
        await connection.execute(manifests["update_manifest"], changed, now)
    await connection.execute(
        occurrences["add_timings"],
        [row["id"] for row in retimed],
        json_array(row["timing"] for row in retimed),
        now,
    )


async def give_up_shots(
    connection: Connection,
    definitions: Sequence[ManifestDefinition],
    ids: dict[str, UUID],
    now: datetime,
) -> None:
    """Record one-shots as missed whose time was long past when declared, and disable them."""
    rows = [
        LedgerRow(
            manifest=ids[external_id],
            cause=identity.due_cause(at),
            first_due_at=at,
            last_due_at=at,
            decision="skipped",
            reason=manifest_state.MISSED,
        )
        for external_id, at in past_shots(definitions, now).items()
    ]
    await write_ledger(connection, rows, now=now)
    await connection.fetch(manifests["retire"], [row.manifest for row in rows])


async def find_parents(
    connection: Connection, definitions: Sequence[ManifestDefinition], ids: dict[str, UUID]
) -> dict[str, UUID]:
    """Return the ids of the parents that definitions name, also those of other owners."""
    named = {manifest.depends_on for manifest in definitions if manifest.depends_on}
    rows = await connection.fetch(manifests["ids_of"], list(named - set(ids)))
    found = {row["external_id"]: row["id"] for row in rows}
    return found | {name: ids[name] for name in named if name in ids}


async def write_parents(
    connection: Connection,
    definitions: Sequence[ManifestDefinition],
    ids: dict[str, UUID],
    parents: dict[str, UUID],
) -> None:
    """Set the parents of dependents; the parent of a follower may be deleted by now."""
    await connection.execute(
        manifests["set_parents"],
        [ids[manifest.external_id] for manifest in definitions],
        [parents.get(manifest.depends_on or "") for manifest in definitions],
    )


def _row(definition: ManifestDefinition, manifest: UUID, now: datetime) -> dict[str, Any]:
    return {
        "id": manifest,
        "external_id": definition.external_id,
        "job": definition.job,
        "group_name": definition.group,
        "input": definition.input,
        "timing": definition.timing,
        "misfire": definition.misfire,
        "overlap": definition.overlap,
        "jitter_seconds": definition.jitter_seconds,
        "terms": terms_of(definition),
        "enabled": definition.enabled,
        "dormant": definition.dormant,
        "batch": definition.batch,
        "labels": definition.labels,
        "definition_hash": definition.fingerprint(),
        "next_due_at": first_due(definition, now),
    }
