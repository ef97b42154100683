"""Declaring what an application defines: an upsert by external id, in one transaction.

An unchanged definition writes nothing and keeps its next due time; so does a changed one
whose timing is the same. What came due under the old definition is decided under it first.
What operators have touched stays as they left it.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import (
    API_OWNER,
    Definitions,
    ManifestDefinition,
)
from headway_clock import new_id
from headway_contract.work import JobChanged, ManifestChanged, Rate, terms_of
from headway_decisions.declaring.app_sources import (
    Application,
    MayDeclare,
    NotTheOwner,
    Source,
    Stale,
    Verdict,
    judge_declaration,
)
from headway_decisions.firing import identity, manifest_state
from headway_decisions.timing.timing import Timing
from headway_history import Record
from headway_postgres_kit import Clock, Connection, json_array
from msgspec import Struct

from headway_scheduler.declare import group_settings
from headway_scheduler.declare.checks import ForeignDefinitions, refuse_problems
from headway_scheduler.declare.first_times import (
    first_due,
    late_in_words,
    past_in_words,
    past_shots,
)
from headway_scheduler.declare.group_settings import GroupChange, decide_groups
from headway_scheduler.declare.inherited_terms import resolve
from headway_scheduler.declare.stored_definitions import (
    kept_messages,
    stored_definitions,
    stored_manifests,
    told,
)
from headway_scheduler.fire.advance import (
    account_for,
    advance,
    leave_parents,
    put_to_rest,
    write_ledger,
)
from headway_scheduler.fire.ledger import LedgerRow
from headway_scheduler.fire.outbound_events import announce_job, announce_switch
from headway_scheduler.store import (
    DECLARE_LOCK,
    HISTORY,
    OUTBOX,
    applications,
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
    """What a declaration changed, and when it was made. `remarks` are for whoever asked for it.

    A `stale` one changed nothing: a newer generation, or another source, declares the application.
    """

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
    declares: Source = "code",
    take_over: bool = False,
    may_fire: bool = True,
) -> Declared:
    """Store definitions, all of them or none; the caller's transaction is one of its own.

    `source` is what the audit calls whoever asks, and `declares` whether that is code or files.
    Who must not fire (a scheduler that does not tick) skips what the old timings missed.
    """
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    declared_at = await clock.now(connection)
    verdict = await judge_source(connection, definitions, declares, take_over=take_over)
    match verdict:
        case NotTheOwner() if declares == "files":
            raise ForeignDefinitions([verdict.reason])
        case NotTheOwner():
            return Declared(at=declared_at, stale=True, remarks=[verdict.reason])
        case Stale():
            remark = (
                f"a newer generation of {definitions.owner!r} than {definitions.generation} has "
                "declared its manifests already: nothing was changed"
            )
            return Declared(at=declared_at, stale=True, remarks=[remark])
    await _note_application(connection, definitions, declares, source, verdict, declared_at)
    resolved = await resolve(connection, definitions)
    definitions = resolved.definitions
    compared = await compare(connection, definitions, resolved.followers)
    await refuse_problems(
        connection, definitions, compared.known, retimed=compared.retimed, now=declared_at
    )
    ids = {one.external_id: new_id() for one in compared.new} | {
        external_id: stored.id for external_id, stored in compared.known.items()
    }
    switched = await members_to_switch(connection, definitions)
    touched = {ids[one.external_id] for one in compared.changed} | switched
    retimed = {ids[one.external_id] for one in compared.changed if compared.retimes(one)}
    locked = await lock_manifests(connection, touched)
    # After the locks: the tick may have fired while we waited for them.
    now = await clock.now(connection)
    rows = await stored_manifests(connection, [ids[one.external_id] for one in compared.changed])
    stored = stored_definitions(rows)
    await _finish_the_past(connection, locked, now, retimed, may_fire=may_fire)
    parents = await _parents(connection, [*compared.new, *compared.changed], ids)
    leaving = set(locked) & _leaving_parents(compared, ids, parents)
    await leave_parents(connection, leaving, now=now)
    await write_jobs(connection, definitions, source, now)
    used = [manifest.group for manifest in (*definitions.manifests, *compared.changed)]
    changed_groups = await write_groups(connection, definitions, used, source, now)
    await _write_manifests(connection, definitions, compared, ids, resolved.sent, now)
    await _write_parents(connection, [*compared.new, *compared.changed], ids, parents)
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
        remarks=[
            *verdict.remarks,
            *past_in_words(compared.retimed, now),
            *late_in_words(late),
            *kept_messages(compared.changed, rows),
            *(text for change in changed_groups for text in change.messages(resets_only=True)),
        ],
    )


async def compare(
    connection: Connection,
    definitions: Definitions,
    followers: Sequence[ManifestDefinition] = (),
) -> Comparison:
    """Which definitions are new, which have changed, and what is no longer among them.

    Followers are stored manifests of others that take terms from the declared jobs.
    """
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
    new = [one for one in definitions.manifests if one.external_id not in known]
    own, following = (
        [manifest for manifest in found if _differs(manifest, known)]
        for found in (definitions.manifests, followers)
    )
    named = {one.external_id for one in definitions.manifests}
    return Comparison(
        new=new,
        changed=[*own, *following],
        unchanged=len(definitions.manifests) - len(new) - len(own),
        gone=[
            one
            for one in known.values()
            if one.external_id not in named and one.owner == definitions.owner
        ],
        known=known,
    )


def _differs(manifest: ManifestDefinition, known: Mapping[str, Known]) -> bool:
    """Whether a manifest is stored with another definition."""
    stored = known.get(manifest.external_id)
    return stored is not None and stored.definition_hash != manifest.fingerprint()


async def judge_source(
    connection: Connection, definitions: Definitions, declares: Source, *, take_over: bool
) -> Verdict:
    """Whether this source may declare the application now."""
    if definitions.owner == API_OWNER:
        return MayDeclare()
    row = await connection.fetchrow(applications["read"], definitions.owner)
    known = None if row is None else msgspec.convert(dict(row), Application)
    return judge_declaration(
        known, source=declares, generation=definitions.generation, take_over=take_over
    )


async def _note_application(
    connection: Connection,
    definitions: Definitions,
    declares: Source,
    source: str,
    verdict: MayDeclare,
    now: datetime,
) -> None:
    if definitions.owner == API_OWNER:
        return
    name, generation = definitions.owner, definitions.generation
    if verdict.taken_over:
        data = {"generation": generation, "remark": verdict.remarks[0]}
        record = audit("headway.application.taken_over.v1", name, source, data, now)
        await HISTORY.append(connection, [record], now=now)
    await connection.execute(applications["declare"], name, generation, now, declares, source)


async def members_to_switch(connection: Connection, definitions: Definitions) -> set[UUID]:
    """Find manifests whose group the declaration switches, or whose job it retires or restores."""
    members = await _members_of_switched_jobs(connection, definitions)
    for change in await decide_groups(connection, definitions):
        if "enabled" in change.replaced:
            rows = await connection.fetch(groups["members"], change.after.name)
            members.update(row["id"] for row in rows)
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
        await account_for(connection, gone, until=now, now=now, otherwise=manifest_state.MISSED)
    # What jitter still held back would fire at a time that no longer exists.
    await account_for(connection, gone, until=now, now=now, otherwise=manifest_state.RETIMED)


async def _members_of_switched_jobs(connection: Connection, definitions: Definitions) -> set[UUID]:
    """The manifests of jobs that this declaration retires or brings back."""
    if definitions.owner == API_OWNER:
        return set()
    rows = await connection.fetch(
        manifests["members_of_switched_jobs"],
        definitions.owner,
        [job.name for job in definitions.jobs],
    )
    return {row["id"] for row in rows}


def _leaving_parents(
    compared: Comparison, ids: dict[str, UUID], parents: dict[str, UUID]
) -> set[UUID]:
    """Dependents that no longer follow the successes of the parent that they have had."""
    return {
        ids[one.external_id]
        for one in compared.changed
        if (parent := compared.known[one.external_id].depends_on) is not None
        and (one.dormant or one.depends_on is None or parents.get(one.depends_on) != parent)
    }


async def write_jobs(
    connection: Connection, definitions: Definitions, source: str, now: datetime
) -> list[str]:
    """Write jobs, retire those that are gone, and announce all; returns the retired ones.

    Limits are announced at every declaration, as those of groups are, in case they were lost.
    """
    jobs = [msgspec.structs.asdict(job) for job in definitions.jobs]
    names = [job.name for job in definitions.jobs]
    if jobs:
        await connection.execute(manifests["upsert_job"], jobs, definitions.owner, now)
    retired: list[str] = []
    if definitions.owner != API_OWNER:
        retired = await _retire_jobs(connection, definitions.owner, names, source=source, now=now)
    rows = await connection.fetch(manifests["job_limits"], [*names, *retired])
    await OUTBOX.add(connection, [announce_job(job_changed(row), now=now) for row in rows])
    return retired


async def _retire_jobs(
    connection: Connection, owner: str, declared: Sequence[str], *, source: str, now: datetime
) -> list[str]:
    """Retire jobs that no application declares any more, and audit it; returns their names."""
    rows = await connection.fetch(manifests["retire_jobs"], owner, declared, now)
    retired = [row["name"] for row in rows if row["retired_at"] is not None]
    records = [
        audit("headway.job.retired.v1", name, source, {"application": owner}, now)
        for name in retired
    ]
    await HISTORY.append(connection, records, now=now)
    return retired


async def write_groups(
    connection: Connection,
    definitions: Definitions,
    used: Sequence[str],
    source: str,
    now: datetime,
) -> list[GroupChange]:
    """Store the settings of groups, with a line of the audit for each group that changes."""
    changes = await group_settings.write_groups(connection, definitions, used, now=now)
    records = [
        audit(
            "headway.group.changed.v1",
            change.after.name,
            source,
            {**change.after.values, "before": change.replaced},
            now,
        )
        for change in changes
        if change.replaced
    ]
    await HISTORY.append(connection, records, now=now)
    return changes


def job_changed(row: Any) -> JobChanged:
    """The event that tells the limits of a job."""
    return JobChanged(
        job=row["name"],
        version=row["version"],
        max_active=row["max_active"],
        rate=msgspec.convert(row["rate"], Rate | None),
        counts_globally=row["counts_globally"],
        batch=row["batch"],
        retired=row["retired_at"] is not None,
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
    sent: Mapping[str, ManifestDefinition],
    now: datetime,
) -> None:
    new, changed = (
        [
            {
                **_row(manifest, ids[manifest.external_id], now),
                "sent": sent.get(manifest.external_id),
            }
            for manifest in written
        ]
        for written in (compared.new, compared.changed)
    )
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
            reason=manifest_state.MISSED,
        )
        for external_id, at in past_shots(definitions, now).items()
    ]
    await write_ledger(connection, rows, now=now)
    await connection.fetch(manifests["retire"], [row.manifest for row in rows])


async def _parents(
    connection: Connection, definitions: Sequence[ManifestDefinition], ids: dict[str, UUID]
) -> dict[str, UUID]:
    """The ids of the parents that definitions name, those of other owners included."""
    named = {one.depends_on for one in definitions if one.depends_on}
    rows = await connection.fetch(manifests["ids_of"], list(named - set(ids)))
    found = {row["external_id"]: row["id"] for row in rows}
    return found | {name: ids[name] for name in named if name in ids}


async def _write_parents(
    connection: Connection,
    definitions: Sequence[ManifestDefinition],
    ids: dict[str, UUID],
    parents: dict[str, UUID],
) -> None:
    """Hang dependents on their parents; the parent of a follower may be gone by now."""
    await connection.execute(
        manifests["set_parents"],
        [ids[one.external_id] for one in definitions],
        [parents.get(one.depends_on) if one.depends_on else None for one in definitions],
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
