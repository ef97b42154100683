"""Write the groups, jobs and manifests of a declaration, and announce them.

Every writer of group settings holds the declaration lock, so a decision about them (`ownership`) is
still true when it is written.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway_contract.fields import Rate
from headway_contract.work import WorkTerms, terms_of, terms_to_store
from headway_decisions.capacity.rates import rate_in_words
from headway_decisions.declaring import ownership
from headway_decisions.declaring.lookup import DEFINITION_COLUMNS
from headway_decisions.declaring.ownership import GROUP_DEFAULTS, GroupSettings, read_group
from headway_decisions.firing import identity, manifest_state
from headway_decisions.wording import counted
from headway_postgres_kit import Connection, driver, json_array
from headway_tracing.log import get_logger
from msgspec import Struct

from headway_scheduler.declare.compare import Comparison
from headway_scheduler.declare.one_shots import first_due, past_shots
from headway_scheduler.fire.decide import LedgerRow
from headway_scheduler.fire.outbound_events import announce_group, announce_job
from headway_scheduler.fire.tick import write_ledger
from headway_scheduler.store import OUTBOX, audit, groups, manifests, occurrences

log = get_logger(__name__)


class GroupChange(Struct, frozen=True, kw_only=True):
    """A group before and after a declaration, and its number of manifests."""

    before: GroupSettings
    after: GroupSettings
    manifests: int

    @property
    def replaced(self) -> dict[str, Any]:
        """Return the fields that change, with the values before."""
        after = self.after.values
        return {
            field: value for field, value in self.before.values.items() if value != after[field]
        }

    def messages(self, *, resets_only: bool = False) -> list[str]:
        """Describe each field that changes; `resets_only` leaves out those that code states."""
        return [
            f"group {self.after.name!r}, which has {counted(self.manifests, 'manifest')}, changes: "
            f"{field} from {shown(value)} to {shown(self.after.values[field])}{why}"
            for field, value in self.replaced.items()
            for why in ["" if field in self.after.declared else ": no code states it any more"]
            if why or not resets_only
        ]


async def decide_groups(
    connection: Connection, definitions: Definitions, used: Sequence[str] = ()
) -> list[GroupChange]:
    """Decide how a declaration changes the stored groups, also those that it no longer names."""
    stated = _stated(definitions)
    names = [*stated, *used]
    rows = await connection.fetch(groups["concerned"], names, definitions.owner)
    changes = []
    for row in rows:
        before = read_group(row)
        after = ownership.restate(before, stated.get(before.name, {}), app=definitions.owner)
        changes.append(GroupChange(before=before, after=after, manifests=row["manifests"]))
    return changes


async def write_groups(
    connection: Connection,
    definitions: Definitions,
    used: Sequence[str],
    *,
    source: str,
    now: datetime,
) -> list[GroupChange]:
    """Store, announce and audit the groups of a declaration, also those that manifests use.

    Each declaration announces all of them again, in case a message was lost.
    """
    names = sorted({*_stated(definitions), *used})
    await connection.execute(groups["ensure"], names, definitions.owner, now)
    # Lock them, so that they are not deleted before this transaction ends.
    await connection.fetch(groups["read"], names)
    changes = await decide_groups(connection, definitions, names)
    app = definitions.owner
    changed = [
        {
            "name": after.name,
            **after.values,
            "declared": after.declared,
            "owner": app if any(each.app == app for each in after.declared.values()) else None,
        }
        for change in changes
        if (after := change.after) != change.before
    ]
    if changed:
        await connection.execute(groups["restate"], changed, now)
    rows = await connection.fetch(groups["read"], [change.after.name for change in changes])
    await OUTBOX.add(connection, [announce_group(row, now=now) for row in rows])
    entries = [
        (change.after.name, {**change.after.values, "before": change.replaced})
        for change in changes
        if change.replaced
    ]
    await audit(connection, "headway.group.changed.v1", source, entries, now=now)
    return changes


async def remove_empty_groups(
    connection: Connection,
    *,
    now: datetime,
    owner: str | None = None,
    stated: Sequence[str] = (),
    only: Sequence[str] | None = None,
) -> None:
    """Delete groups without manifests and settings, and announce that.

    Changes nothing if a manifest joins one of them at the same time: the next start tries again.
    With `owner`, groups of other applications stay.
    """
    try:
        async with connection.transaction():
            rows = await connection.fetch(groups["empty"], owner, list(stated), only)
            gone = await connection.fetch(groups["remove"], [row["name"] for row in rows], now)
    except driver.ForeignKeyViolationError:
        log.info("empty groups are in use again; the next start deletes them")
        return
    await OUTBOX.add(connection, [announce_group(row, now=now) for row in gone])


def _stated(definitions: Definitions) -> dict[str, dict[str, Any]]:
    """Return the stated settings by group; a group that only manifests name states none."""
    stated = {
        group.name: {
            field: msgspec.to_builtins(value)
            for field in GROUP_DEFAULTS
            if (value := getattr(group, field)) is not None
        }
        for group in definitions.groups
    }
    for manifest in definitions.manifests:
        stated.setdefault(manifest.group, {})
    return stated


def shown(value: Any) -> Any:
    """Format a setting as users write it."""
    return rate_in_words(msgspec.convert(value, Rate)) if isinstance(value, dict) else value


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
                **{name: getattr(manifest, name) for name in DEFINITION_COLUMNS},
                "id": ids[manifest.external_id],
                "group_name": manifest.group,
                "terms": terms_to_store(WorkTerms(**terms_of(manifest))),
                "definition_hash": manifest.fingerprint(),
                "next_due_at": first_due(manifest, now),
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


async def write_parents(
    connection: Connection, definitions: Sequence[ManifestDefinition], ids: dict[str, UUID]
) -> None:
    """Set the parents of dependents; the parent of a follower may be deleted by now."""
    await connection.execute(
        manifests["set_parents"],
        [ids[manifest.external_id] for manifest in definitions],
        [ids.get(manifest.depends_on or "") for manifest in definitions],
    )
