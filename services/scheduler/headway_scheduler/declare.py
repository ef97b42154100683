"""Declaring what an application defines: an upsert by external id, in one transaction.

An unchanged definition writes nothing and keeps its next due time; so does a changed one
whose timing is the same. What came due under the old definition is decided under it first.
What operators have touched stays as they left it.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway.definitions import (
    API_OWNER,
    Definitions,
    GroupDefinition,
    ManifestDefinition,
)
from headway_clock import new_id
from headway_contract.work import GroupChanged, JobChanged, ManifestChanged, Rate
from headway_decisions import identity, views
from headway_decisions.timing import Timing
from headway_history import Record
from headway_postgres_kit import Clock, Connection, json_array
from msgspec import Struct

from headway_scheduler.advance import (
    account_for,
    advance,
    leave_parents,
    put_to_rest,
    write_ledger,
)
from headway_scheduler.announce import announce_group, announce_job, announce_switch
from headway_scheduler.checking import refuse_problems
from headway_scheduler.first_times import first_due, late_in_words, past_in_words, past_shots
from headway_scheduler.ledger import LedgerRow
from headway_scheduler.redefined import stored_definitions, told
from headway_scheduler.store import (
    DECLARE_LOCK,
    HISTORY,
    OUTBOX,
    groups,
    lock_manifests,
    manifests,
    occurrences,
)


class Known(Struct, frozen=True, kw_only=True):
    """A manifest as it is stored."""

    id: UUID
    external_id: str
    owner: str
    definition_hash: str
    timing: Any
    batch: str | None
    disabled_by: str | None
    depends_on: UUID | None


class Comparison(Struct, frozen=True, kw_only=True):
    """How definitions differ from what is stored."""

    new: list[ManifestDefinition]
    changed: list[ManifestDefinition]
    unchanged: int
    # Stored manifests of this owner that are not among the definitions.
    gone: list[Known]
    known: dict[str, Known]

    @property
    def retimed(self) -> list[ManifestDefinition]:
        """Those that fire at other times than anything that is stored."""
        return [*self.new, *(one for one in self.changed if self.retimes(one))]

    def retimes(self, definition: ManifestDefinition) -> bool:
        """Whether a changed definition fires at other times than the stored one."""
        try:
            stored = msgspec.convert(self.known[definition.external_id].timing, Timing)
        except msgspec.ValidationError:
            return True  # written by a newer version: nobody here can say
        return bool(stored != definition.timing)


class Declared(Struct, frozen=True, kw_only=True):
    """What a declaration changed, and when it was made. `remarks` are for whoever asked for it."""

    at: datetime
    remarks: list[str] = []
    created: list[str] = []
    changed: list[str] = []
    unchanged: int = 0
    gone: list[Known] = []
    stale: bool = False


async def declare(
    connection: Connection,
    definitions: Definitions,
    *,
    source: str,
    clock: Clock,
    may_fire: bool = True,
) -> Declared:
    """Store definitions, all of them or none; the caller's transaction is one of its own.

    Who must not fire (a scheduler that does not tick) skips what the old timings missed.
    """
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    declared_at = await clock.now(connection)
    if not await _is_current(connection, definitions, declared_at):
        return Declared(at=declared_at, stale=True)
    compared = await compare(connection, definitions)
    await refuse_problems(
        connection, definitions, compared.known, retimed=compared.retimed, now=declared_at
    )
    ids = {one.external_id: new_id() for one in compared.new} | {
        external_id: stored.id for external_id, stored in compared.known.items()
    }
    switched = await _members_to_switch(connection, definitions.groups)
    touched = {ids[one.external_id] for one in compared.changed} | switched
    retimed = {ids[one.external_id] for one in compared.changed if compared.retimes(one)}
    locked = await lock_manifests(connection, touched)
    # After the locks: the tick may have fired while we waited for them.
    now = await clock.now(connection)
    stored = await stored_definitions(
        connection, [ids[one.external_id] for one in compared.changed]
    )
    await _finish_the_past(connection, locked, now, retimed, may_fire=may_fire)
    await leave_parents(connection, set(locked) & _leaving_parents(compared, ids), now=now)
    await _write_jobs(connection, definitions, now)
    await _write_groups(connection, definitions, source, now)
    await _write_manifests(connection, definitions, compared, ids, now)
    locked = await lock_manifests(
        connection, touched | {ids[one.external_id] for one in compared.new}
    )
    await put_to_rest(connection, locked, now=now)
    await tell_switches(connection, locked, now=now)
    await _give_up_shots(connection, compared.retimed, ids, now)
    # What was enabled too late for its one time has nothing else to wait for.
    late = await connection.fetch(manifests["retire"], locked)
    declared = [*compared.new, *compared.changed]
    records = [
        audit("headway.manifest.declared.v1", one.external_id, source, told(one, stored), now)
        for one in declared
    ]
    await HISTORY.append(connection, records, now=now)
    return Declared(
        at=declared_at,
        created=sorted(one.external_id for one in compared.new),
        changed=sorted(one.external_id for one in compared.changed),
        unchanged=compared.unchanged,
        gone=compared.gone,
        remarks=[*past_in_words(compared.retimed, now), *late_in_words(late)],
    )


async def compare(connection: Connection, definitions: Definitions) -> Comparison:
    """Which definitions are new, which have changed, and what is no longer among them."""
    rows = await connection.fetch(
        manifests["declared_by"],
        definitions.owner,
        [one.external_id for one in definitions.manifests],
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
    new = [one for one in definitions.manifests if one.external_id not in known]
    changed = [
        one
        for one in definitions.manifests
        if one.external_id in known and known[one.external_id].definition_hash != one.fingerprint()
    ]
    named = {one.external_id for one in definitions.manifests}
    return Comparison(
        new=new,
        changed=changed,
        unchanged=len(definitions.manifests) - len(new) - len(changed),
        gone=[
            one
            for one in known.values()
            if one.external_id not in named and one.owner == definitions.owner
        ],
        known=known,
    )


async def _is_current(connection: Connection, definitions: Definitions, now: datetime) -> bool:
    if definitions.owner == API_OWNER:
        return True
    generation = await connection.fetchval(
        manifests["declare_application"], definitions.owner, definitions.generation, now
    )
    return generation is not None


async def _members_to_switch(
    connection: Connection, stated: Sequence[GroupDefinition]
) -> set[UUID]:
    """The manifests of groups that the code is about to enable or disable."""
    wanted = {group.name: group.enabled for group in stated if group.enabled is not None}
    rows = await connection.fetch(groups["read"], list(wanted))
    members: set[UUID] = set()
    for row in rows:
        if row["enabled"] != wanted[row["name"]] and "enabled" not in row["touched"]:
            found = await connection.fetch(groups["members"], row["name"])
            members.update(one["id"] for one in found)
    return members


async def _finish_the_past(
    connection: Connection,
    locked: Sequence[UUID],
    now: datetime,
    retimed: set[UUID],
    *,
    may_fire: bool,
) -> None:
    """Decide under the old definition what came due under it.

    Who must not fire leaves that to whoever does, unless its timing is about to be gone.
    """
    await account_for(connection, locked, until=now, now=now)
    gone = [manifest for manifest in locked if manifest in retimed]
    if may_fire:
        await advance(connection, locked, now=now)
    else:
        await account_for(connection, gone, until=now, now=now, otherwise=views.MISSED)
    # What jitter still held back would fire at a time that no longer exists.
    await account_for(connection, gone, until=now, now=now, otherwise=views.RETIMED)


def _leaving_parents(compared: Comparison, ids: dict[str, UUID]) -> set[UUID]:
    """Dependents that no longer follow the successes of the parent that they have had."""
    return {
        ids[one.external_id]
        for one in compared.changed
        if (parent := compared.known[one.external_id].depends_on) is not None
        and (one.dormant or one.depends_on is None or ids.get(one.depends_on) != parent)
    }


async def _write_jobs(connection: Connection, definitions: Definitions, now: datetime) -> None:
    """Jobs and their limits, which are told again at every declaration, as those of groups are."""
    jobs = [msgspec.structs.asdict(job) for job in definitions.jobs]
    if jobs:
        await connection.execute(manifests["upsert_job"], jobs, definitions.owner, now)
        rows = await connection.fetch(manifests["job_limits"], [job["name"] for job in jobs])
        await OUTBOX.add(connection, [announce_job(job_changed(row), now=now) for row in rows])


async def _write_groups(
    connection: Connection, definitions: Definitions, source: str, now: datetime
) -> None:
    """Settings of groups; they are told again at every declaration, in case they were lost."""
    stated = {group.name: group for group in definitions.groups}
    for one in definitions.manifests:
        stated.setdefault(one.group, GroupDefinition(name=one.group))
    arguments = (
        list(stated),
        [group.max_active for group in stated.values()],
        [group.priority for group in stated.values()],
        [group.enabled for group in stated.values()],
        definitions.owner,
        now,
        json_array(group.rate for group in stated.values()),
    )
    await connection.execute(groups["upsert"], *arguments)
    await connection.execute(groups["note_declared"], *arguments[:4], arguments[6])
    changed = {row["name"] for row in await connection.fetch(groups["restate"], *arguments)}
    rows = await connection.fetch(groups["read"], list(stated))
    await OUTBOX.add(connection, [announce_group(group_changed(row), now=now) for row in rows])
    await HISTORY.append(
        connection,
        [
            audit("headway.group.changed.v1", row["name"], source, dict(row), now)
            for row in rows
            if row["name"] in changed
        ],
        now=now,
    )


def group_changed(row: Any) -> GroupChanged:
    """The event that tells the settings of a group."""
    return GroupChanged(
        group=row["name"],
        version=row["version"],
        max_active=row["max_active"],
        priority=row["priority"],
        enabled=row["enabled"],
        rate=msgspec.convert(row["rate"], Rate | None),
    )


def job_changed(row: Any) -> JobChanged:
    """The event that tells the limits of a job."""
    return JobChanged(
        job=row["name"],
        version=row["version"],
        max_active=row["max_active"],
        rate=msgspec.convert(row["rate"], Rate | None),
        counts_globally=row["counts_globally"],
        batch=row["batch"],
    )


async def tell_switches(connection: Connection, locked: Sequence[UUID], *, now: datetime) -> None:
    """Tell the dispatcher which of these manifests were enabled or disabled; they are locked."""
    rows = await connection.fetch(manifests["switched"], locked)
    await OUTBOX.add(connection, [announce_switch(manifest_changed(row), now=now) for row in rows])


def manifest_changed(row: Any) -> ManifestChanged:
    """The event that tells whether the work of a manifest may run."""
    return ManifestChanged(
        manifest_id=row["id"],
        manifest=row["external_id"],
        group=row["group_name"],
        version=row["version"],
        enabled=row["enabled"],
    )


async def _write_manifests(
    connection: Connection,
    definitions: Definitions,
    compared: Comparison,
    ids: dict[str, UUID],
    now: datetime,
) -> None:
    new = [_row(one, ids[one.external_id], now) for one in compared.new]
    changed = [_row(one, ids[one.external_id], now) for one in compared.changed]
    retimed = [(row["id"], row["timing"]) for row in new]
    for definition, row in zip(compared.changed, changed, strict=True):
        row["retimed"] = compared.retimes(definition)
        if row["retimed"]:
            retimed.append((row["id"], row["timing"]))
    if new:
        await connection.execute(manifests["insert_manifest"], new, definitions.owner, now)
    if changed:
        await connection.execute(manifests["update_manifest"], changed, now)
    await connection.execute(
        occurrences["add_timings"],
        [manifest for manifest, _ in retimed],
        json_array(one for _, one in retimed),
        now,
    )
    await _write_parents(connection, [*compared.new, *compared.changed], ids)


async def _give_up_shots(
    connection: Connection,
    definitions: Sequence[ManifestDefinition],
    ids: dict[str, UUID],
    now: datetime,
) -> None:
    """A one-shot whose time was long past when it was declared says so, and disables itself."""
    rows = [
        LedgerRow(
            manifest=ids[external_id],
            cause=identity.due_cause(at),
            first_due_at=at,
            last_due_at=at,
            decision="skipped",
            reason=views.MISSED,
        )
        for external_id, at in past_shots(definitions, now).items()
    ]
    await write_ledger(connection, rows, now=now)
    await connection.fetch(manifests["retire"], [row.manifest for row in rows])


async def _write_parents(
    connection: Connection, definitions: Sequence[ManifestDefinition], ids: dict[str, UUID]
) -> None:
    named = {one.depends_on for one in definitions if one.depends_on} - set(ids)
    rows = await connection.fetch(manifests["ids_of"], list(named))
    found = {**ids, **{row["external_id"]: row["id"] for row in rows}}
    await connection.execute(
        manifests["set_parents"],
        [ids[one.external_id] for one in definitions],
        [found[one.depends_on] if one.depends_on else None for one in definitions],
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
        "priority": definition.priority,
        "retry": definition.retry,
        "timeout_seconds": definition.timeout_seconds,
        "cancel_grace_seconds": definition.cancel_grace_seconds,
        "on_lost_contact": definition.on_lost_contact,
        "on_dead_letter": definition.on_dead_letter,
        "enabled": definition.enabled,
        "dormant": definition.dormant,
        "batch": definition.batch,
        "concurrency_key": definition.concurrency_key,
        "concurrency_limit": definition.concurrency_limit,
        "start_within_seconds": definition.start_within_seconds,
        "labels": definition.labels,
        "definition_hash": definition.fingerprint(),
        "next_due_at": first_due(definition, now),
    }


def audit(kind: str, subject: str, source: str, data: Any, now: datetime) -> Record:
    """One line of the audit: what was done to what, and by whom."""
    return Record(
        event_id=str(new_id()),
        type=kind,
        subject=subject,
        source=source,
        occurred_at=now,
        data=data,
    )
