"""Declare the definitions of an application: an upsert by external id, in one transaction.

An unchanged definition writes nothing. A changed one whose timing stays keeps its next due time.
Times that came due under the old definition are decided under it first. Fields that an operator
owns keep their values.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway.define.definitions import API_OWNER, Definitions
from headway_clock import new_id
from headway_contract.definitions import ApplyAnswer
from headway_decisions.declaring.app_sources import MayDeclare, NotTheOwner, Source, Stale
from headway_decisions.firing import manifest_state
from headway_postgres_kit import Connection, Database
from msgspec import Struct, structs

from headway_scheduler import store
from headway_scheduler.declare import checks, compare, write
from headway_scheduler.declare.one_shots import late_messages, past_messages
from headway_scheduler.fire import missed, tick
from headway_scheduler.fire.outbound_events import announce_switches
from headway_scheduler.fire.pauses import apply_pauses
from headway_scheduler.lookup import queries


class Declared(Struct, frozen=True, kw_only=True):
    """A declaration: its changes, with remarks for its author, and manifests that it left out.

    A `stale` one changed nothing: a newer generation, or another source, declares the application.
    """

    at: datetime
    answer: ApplyAnswer
    gone: list[compare.Known] = []


async def declare(
    database: Database,
    definitions: Definitions,
    *,
    source: str,
    declares: Source = "code",
    take_over: bool = False,
    may_fire: bool = True,
) -> Declared:
    """Store definitions, all of them or none, in a transaction of their own.

    `source` is the author in the audit, `declares` whether that is code or files. Without
    `may_fire` (a scheduler that does not tick), times that old timings missed are skipped.
    """
    async with database.acquire() as connection:
        now = await database.clock.now(connection)
    # Before the transaction, which must not stay idle; in a thread, because the tick shares this
    # process.
    stated = {manifest.timing for manifest in definitions.manifests}
    timings = await asyncio.to_thread(checks.timing_problems, stated, now)
    async with database.transaction() as connection:
        await connection.execute(store.manifests["lock_declaring"], store.DECLARE_LOCK)
        declared_at = await database.clock.now(connection)
        owner = definitions.owner
        verdict = await compare.judge_source(connection, definitions, declares, take_over=take_over)
        match verdict:
            case NotTheOwner() if declares == "files":
                raise checks.ForeignDefinitions([verdict.reason])
            case NotTheOwner() | Stale():
                answer = ApplyAnswer(owner=owner, stale=True, warnings=[verdict.reason])
                return Declared(at=declared_at, answer=answer)
        await _note_application(connection, definitions, declares, source, verdict, declared_at)
        resolved = await compare.resolve(connection, definitions)
        compared = await compare.compare(connection, resolved.definitions, resolved.followers)
        references = await checks.read_references(
            connection, resolved.definitions, resolved.followers
        )
        # In a thread too, for the schemas of inputs.
        await asyncio.to_thread(
            checks.refuse_problems,
            resolved.definitions,
            compared.known,
            references,
            compared.retimed,
            declared_at,
            timings=timings,
        )
        ids = {
            **references.parents,
            **{manifest.external_id: new_id() for manifest in compared.new},
            **{external_id: stored.id for external_id, stored in compared.known.items()},
        }
        changed = {ids[manifest.external_id] for manifest in compared.changed}
        affected = changed | await members_to_switch(connection, resolved.definitions)
        locked = await store.lock_manifests(connection, affected)
        # After the locks: the tick may have fired while this transaction waited for them.
        now = await database.clock.now(connection)
        found = await connection.fetch(queries["definitions_of"], list(changed))
        rows = {row["external_id"]: row for row in found}
        retimed = {ids[manifest.external_id] for manifest in compared.moved}
        await _finish_the_past(connection, locked, now, retimed, may_fire=may_fire)
        changed_groups, late = await _write(
            connection, resolved, compared, ids, locked, source, now
        )
        stored = compare.stored_definitions(rows)
        entries = [
            (manifest.external_id, compare.audited_definition(manifest, stored))
            for manifest in compared.written
        ]
        await store.audit(connection, "headway.manifest.declared.v1", source, entries, now=now)
    answer = structs.replace(
        compared.answer(owner),
        warnings=[
            *verdict.remarks,
            *past_messages(compared.retimed, now),
            *late_messages(late),
            *compare.kept_messages(compared.changed, rows),
            *(text for change in changed_groups for text in change.messages(resets_only=True)),
        ],
    )
    return Declared(at=declared_at, answer=answer, gone=compared.gone)


async def _write(
    connection: Connection,
    resolved: compare.Resolved,
    compared: compare.Comparison,
    ids: dict[str, UUID],
    locked: Sequence[UUID],
    source: str,
    now: datetime,
) -> tuple[list[write.GroupChange], Sequence[Any]]:
    """Write jobs, groups and manifests; returns changed groups, and one-shots enabled too late."""
    definitions = resolved.definitions
    leaving = set(locked) & _leaving_parents(compared, ids)
    await missed.leave_parents(connection, leaving, now=now)
    await write.write_jobs(connection, definitions, source, now)
    used = [manifest.group for manifest in (*definitions.manifests, *compared.changed)]
    changed_groups = await write.write_groups(connection, definitions, used, source=source, now=now)
    await write.write_manifests(connection, definitions, compared, ids, resolved.sent, now)
    await write.write_parents(connection, compared.written, ids)
    new = {ids[manifest.external_id] for manifest in compared.new}
    locked = await store.lock_manifests(connection, {*locked, *new})
    await apply_pauses(connection, locked, source=source, now=now)
    await tick.reschedule_wake(connection, locked, now=now)
    await announce_switches(connection, locked, now=now)
    await write.give_up_shots(connection, compared.retimed, ids, now)
    # One-shots that were enabled after their time have nothing left to fire.
    late = await connection.fetch(store.manifests["retire"], locked)
    return changed_groups, late


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
        kind = "headway.application.taken_over.v1"
        await store.audit(connection, kind, source, [(name, data)], now=now)
    await connection.execute(store.applications["declare"], name, generation, now, declares, source)


async def members_to_switch(connection: Connection, definitions: Definitions) -> set[UUID]:
    """Find manifests whose group is switched, or whose job is retired or restored."""
    members: set[UUID] = set()
    if definitions.owner != API_OWNER:
        jobs = [job.name for job in definitions.jobs]
        rows = await connection.fetch(
            store.manifests["members_of_switched_jobs"], definitions.owner, jobs
        )
        members = {row["id"] for row in rows}
    for change in await write.decide_groups(connection, definitions):
        if "enabled" in change.replaced:
            rows = await connection.fetch(store.groups["members"], change.after.name)
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
    await missed.skip_missed_during_pause(connection, locked, now=now)
    gone = [manifest for manifest in locked if manifest in retimed]
    if may_fire:
        await tick.advance(connection, locked, now=now)
    else:
        await missed.skip_missed_during_pause(
            connection, gone, now=now, otherwise=manifest_state.MISSED
        )
    # Times that jitter still delays belong to a timing that is replaced.
    await missed.skip_missed_during_pause(
        connection, gone, now=now, otherwise=manifest_state.RETIMED
    )


def _leaving_parents(compared: compare.Comparison, ids: Mapping[str, UUID]) -> set[UUID]:
    """Find dependents that no longer follow the successes of their previous parent."""
    return {
        ids[manifest.external_id]
        for manifest in compared.changed
        if (parent := compared.known[manifest.external_id].depends_on) is not None
        and (manifest.dormant or ids.get(manifest.depends_on or "") != parent)
    }
