"""Declare the definitions of an application: an upsert by external id, in one transaction.

An unchanged definition writes nothing. A changed one whose timing stays keeps its next due time.
Times that came due under the old definition are decided under it first. Fields that an operator
owns keep their values.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from headway.define.definitions import API_OWNER, Definitions
from headway_clock import new_id
from headway_decisions.declaring.app_sources import MayDeclare, NotTheOwner, Source, Stale
from headway_decisions.firing import manifest_state
from headway_postgres_kit import Clock, Connection
from msgspec import Struct

from headway_scheduler.declare.checks import ForeignDefinitions, refuse_problems
from headway_scheduler.declare.compare import Comparison, Known, compare, judge_source, resolve
from headway_scheduler.declare.group_settings import decide_groups, write_groups
from headway_scheduler.declare.one_shots import late_messages, past_messages
from headway_scheduler.declare.stored_definitions import (
    audited_definition,
    kept_messages,
    stored_definitions,
    stored_manifests,
)
from headway_scheduler.declare.write import (
    find_parents,
    give_up_shots,
    write_jobs,
    write_manifests,
    write_parents,
)
from headway_scheduler.fire.decide import (
    advance,
    leave_parents,
    reschedule_wake,
    skip_missed_during_pause,
)
from headway_scheduler.fire.record import announce_switches
from headway_scheduler.store import (
    DECLARE_LOCK,
    HISTORY,
    applications,
    audit,
    groups,
    lock_manifests,
    manifests,
)


class Declared(Struct, frozen=True, kw_only=True):
    """The changes of a declaration, and remarks for its author.

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
    """Store definitions, all of them or none, in a transaction of their own.

    `source` is the author in the audit, `declares` whether that is code or files. Without
    `may_fire` (a scheduler that does not tick), times that old timings missed are skipped.
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
    ids = {manifest.external_id: new_id() for manifest in compared.new} | {
        external_id: stored.id for external_id, stored in compared.known.items()
    }
    changed = {ids[manifest.external_id] for manifest in compared.changed}
    touched = changed | await members_to_switch(connection, definitions)
    locked = await lock_manifests(connection, touched)
    # After the locks: the tick may have fired while we waited for them.
    now = await clock.now(connection)
    rows = await stored_manifests(connection, list(changed))
    retimed = {ids[manifest.external_id] for manifest in filter(compared.retimes, compared.changed)}
    await _finish_the_past(connection, locked, now, retimed, may_fire=may_fire)
    parents = await find_parents(connection, compared.written, ids)
    leaving = set(locked) & _leaving_parents(compared, ids, parents)
    await leave_parents(connection, leaving, now=now)
    await write_jobs(connection, definitions, source, now)
    used = [manifest.group for manifest in (*definitions.manifests, *compared.changed)]
    changed_groups = await write_groups(connection, definitions, used, source=source, now=now)
    await write_manifests(connection, definitions, compared, ids, resolved.sent, now)
    await write_parents(connection, compared.written, ids, parents)
    locked = await lock_manifests(
        connection, touched | {ids[manifest.external_id] for manifest in compared.new}
    )
    await reschedule_wake(connection, locked, now=now)
    await announce_switches(connection, locked, now=now)
    await give_up_shots(connection, compared.retimed, ids, now)
    # One-shots that were enabled after their time have nothing left to fire.
    late = await connection.fetch(manifests["retire"], locked)
    stored = stored_definitions(rows)
    records = [
        audit(
            "headway.manifest.declared.v1",
            manifest.external_id,
            source,
            audited_definition(manifest, stored),
            now,
        )
        for manifest in compared.written
    ]
    await HISTORY.append(connection, records, now=now)
    return Declared(
        at=declared_at,
        created=sorted(manifest.external_id for manifest in compared.new),
        changed=sorted(manifest.external_id for manifest in compared.changed),
        unchanged=compared.unchanged,
        gone=compared.gone,
        remarks=[
            *verdict.remarks,
            *past_messages(compared.retimed, now),
            *late_messages(late),
            *kept_messages(compared.changed, rows),
            *(text for change in changed_groups for text in change.messages(resets_only=True)),
        ],
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
    """Find manifests whose group is switched, or whose job is retired or restored."""
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
    """Decide times that came due under the old definition.

    Without `may_fire` only the times of replaced timings are decided, as missed.
    """
    await skip_missed_during_pause(connection, locked, until=now, now=now)
    gone = [manifest for manifest in locked if manifest in retimed]
    if may_fire:
        await advance(connection, locked, now=now)
    else:
        await skip_missed_during_pause(
            connection, gone, until=now, now=now, otherwise=manifest_state.MISSED
        )
    # Times that jitter still delays belong to a timing that is replaced.
    await skip_missed_during_pause(
        connection, gone, until=now, now=now, otherwise=manifest_state.RETIMED
    )


async def _members_of_switched_jobs(connection: Connection, definitions: Definitions) -> set[UUID]:
    """Find the manifests of jobs that this declaration retires or restores."""
    if definitions.owner == API_OWNER:
        return set()
    rows = await connection.fetch(
        manifests["members_of_switched_jobs"],
        definitions.owner,
        [job.name for job in definitions.jobs],
    )
    return {row["id"] for row in rows}


def _leaving_parents(
    compared: Comparison, ids: Mapping[str, UUID], parents: Mapping[str, UUID]
) -> set[UUID]:
    """Find dependents that no longer follow the successes of their previous parent."""
    return {
        ids[manifest.external_id]
        for manifest in compared.changed
        if (parent := compared.known[manifest.external_id].depends_on) is not None
        and (manifest.dormant or parents.get(manifest.depends_on or "") != parent)
    }
