"""Plan a declaration: what applying definitions would change, without changing it."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway.define.definitions import API_OWNER, Definitions, ManifestDefinition
from headway.define.packing import problems_of, unpack
from headway_contract.definitions import ApplyAnswer, ApplyRequest, PrunePolicy
from headway_decisions.declaring.app_sources import NotTheOwner, Stale
from headway_decisions.timing.timing import Timing
from headway_postgres_kit import Connection, Database
from msgspec import Struct, structs

from headway_scheduler.declare import checks, compare
from headway_scheduler.declare.fire_changes import Firing, Move, changes
from headway_scheduler.declare.one_shots import first_due, has_come, late_messages, past_messages
from headway_scheduler.declare.startup import leaving
from headway_scheduler.declare.write import decide_groups, shown
from headway_scheduler.lookup import queries, reading


class _Stored(Struct, frozen=True, kw_only=True):
    """Everything that a plan reads; `firing` are rows of changed and leaving manifests."""

    definitions: Definitions
    compared: compare.Comparison
    references: checks.References
    firing: dict[str, Any]
    pruned: list[compare.Known]
    disabled: list[compare.Known]
    # About groups and jobs.
    warnings: list[str]


async def plan(database: Database, request: ApplyRequest, *, policy: PrunePolicy) -> ApplyAnswer:
    """Return what applying these definitions would create, change, prune and disable."""
    with checks.request_errors():
        definitions = unpack(request.definitions)
    async with reading(database) as (connection, now):
        verdict = await compare.judge_source(
            connection, definitions, "files", take_over=request.take_over
        )
        if isinstance(verdict, Stale):
            return ApplyAnswer(owner=definitions.owner, stale=True, warnings=[verdict.reason])
        stored = await _read(connection, definitions, request.prune or policy)
    # After the transaction, which must not stay idle; in a thread, because the tick shares this
    # process.
    with checks.request_errors():
        answer = await asyncio.to_thread(_plan, stored, now, now + timedelta(days=request.days))
    if isinstance(verdict, NotTheOwner):
        return structs.replace(answer, refused=verdict.reason)
    return structs.replace(answer, warnings=[*verdict.remarks, *answer.warnings])


async def _read(connection: Connection, definitions: Definitions, prune: PrunePolicy) -> _Stored:
    resolved = await compare.resolve(connection, definitions)
    definitions = resolved.definitions
    compared = await compare.compare(connection, definitions, resolved.followers)
    batches, orphans = leaving(definitions, compared.gone)
    pruned = [manifest for left in batches.values() for manifest in left]
    pruned += orphans if prune == "delete" else []
    silenced = orphans if prune == "disable" else []
    ids = [compared.known[manifest.external_id].id for manifest in compared.changed]
    ids += [manifest.id for manifest in (*pruned, *silenced)]
    firing = {row["external_id"]: row for row in await connection.fetch(queries["firing_of"], ids)}
    group_changes = await decide_groups(connection, definitions)
    return _Stored(
        definitions=definitions,
        compared=compared,
        references=await checks.read_references(connection, definitions),
        firing=firing,
        pruned=pruned,
        # Manifests that an earlier declaration disabled do not change.
        disabled=[
            manifest
            for manifest in silenced
            if firing[manifest.external_id]["enabled"]
            or firing[manifest.external_id]["undeclared_at"] is None
        ],
        warnings=[
            *(text for change in group_changes for text in change.messages()),
            *await _jobs(connection, definitions),
            *await _retired_jobs(connection, definitions, pruned),
        ],
    )


def _plan(stored: _Stored, now: datetime, horizon: datetime) -> ApplyAnswer:
    """Check the definitions and compute the changes; raises `InvalidDefinitions`."""
    definitions, compared, firing = stored.definitions, stored.compared, stored.firing
    problems = problems_of(definitions)
    checks.refuse_problems(
        definitions, compared.known, stored.references, compared.retimed, now, problems
    )
    moves = _moves(compared, firing, [*stored.pruned, *stored.disabled], now)
    fires, left_out = changes(moves, horizon)
    return structs.replace(
        compared.answer(definitions.owner),
        pruned=compare.names_of(stored.pruned),
        disabled=compare.names_of(stored.disabled),
        fires=fires,
        left_out=left_out,
        warnings=[
            *past_messages(compared.retimed, now),
            *late_messages(_late(compared, firing, now)),
            *compare.kept_messages(compared.changed, firing),
            *stored.warnings,
        ],
    )


def _moves(
    compared: compare.Comparison,
    stored: Mapping[str, Any],
    left: Sequence[compare.Known],
    now: datetime,
) -> list[Move]:
    """Return how manifests whose times may change fire before and after.

    New manifests are last: an answer that has no room for all lists the existing ones first.
    """
    moves = []
    for manifest in compared.changed:
        row = stored[manifest.external_id]
        before, after = _before(row), _after(manifest, row, now)
        if before != after:
            moves.append(
                Move(external_id=manifest.external_id, before=before, after=after, now=now)
            )
    for gone in left:
        row = stored[gone.external_id]
        moves.append(Move(external_id=gone.external_id, before=_before(row), now=now))
    return moves + [
        Move(external_id=manifest.external_id, after=_after(manifest, None, now), now=now)
        for manifest in compared.new
    ]


def _before(row: Any) -> Firing | None:
    if not row["enabled"]:
        return None
    timing = msgspec.convert(row["timing"], Timing)
    return Firing(timing=timing, jitter_seconds=row["jitter_seconds"], first=row["next_due_at"])


def _after(definition: ManifestDefinition, row: Any | None, now: datetime) -> Firing | None:
    """Return how a new or changed manifest fires; an operator's fields keep their values."""
    jitter, first = definition.jitter_seconds, first_due(definition, now)
    enabled = definition.enabled
    if row is not None:
        retimed = msgspec.convert(row["timing"], Timing) != definition.timing
        enabled = _is_enabled(definition, row, retimed)
        jitter = row["jitter_seconds"] if "jitter" in row["operator_fields"] else jitter
        first = first if retimed else row["next_due_at"]
    if not enabled:
        return None
    return Firing(timing=definition.timing, jitter_seconds=jitter, first=first)


def _late(compared: compare.Comparison, stored: Mapping[str, Any], now: datetime) -> list[Any]:
    """Find one-shots that would be enabled after their time."""
    return [
        row
        for manifest in compared.changed
        if not compared.retimes(manifest)
        for row in [stored[manifest.external_id]]
        if not row["enabled"] and _is_enabled(manifest, row, retimed=False) and has_come(row, now)
    ]


def _is_enabled(definition: ManifestDefinition, row: Any, retimed: bool) -> bool:
    """Return whether a changed manifest would be enabled, by the rule of `update_manifest`."""
    match row["disabled_by"]:
        case "pruned":
            keeps = False
        case "once":
            keeps = not retimed
        case _:
            keeps = "enabled" in row["operator_fields"]
    enabled: bool = row["enabled"] if keeps else definition.enabled
    return enabled


async def _jobs(connection: Connection, definitions: Definitions) -> list[str]:
    """Describe limits of jobs that would change; an operator's limits stay in force."""
    stated = {job.name: job for job in definitions.jobs}
    rows = await connection.fetch(queries["job_settings"], list(stated))
    messages = []
    for row in rows:
        for setting in ("max_active", "rate", "batch", "counts_globally"):
            wanted = msgspec.to_builtins(getattr(stated[row["name"]], setting))
            if wanted != row[setting] and setting not in row["operator_limits"]:
                messages.append(
                    f"job {row['name']!r} changes: {setting} from {shown(row[setting])} "
                    f"to {shown(wanted)}"
                )
    return messages


async def _retired_jobs(
    connection: Connection, definitions: Definitions, pruned: Sequence[compare.Known]
) -> list[str]:
    """Warn about jobs that would be retired, and about manifests that would use a retired job."""
    if definitions.owner == API_OWNER:
        return []
    stated = [job.name for job in definitions.jobs]
    rows = await connection.fetch(queries["retired_after"], definitions.owner, stated)
    dropped = dict.fromkeys(row["job"] for row in rows if row["retired_at"] is None)
    # Pruned manifests and manifests that change their job use it no longer.
    left = {manifest.external_id for manifest in pruned}
    jobs = {manifest.external_id: manifest.job for manifest in definitions.manifests}
    uses = [
        row
        for row in rows
        if row["external_id"] is not None
        and row["external_id"] not in left
        and jobs.get(row["external_id"], row["job"]) == row["job"]
    ]
    return [
        *(f"job {name!r} is no longer declared: it would be retired" for name in dropped),
        *checks.retired_use_warnings(uses),
    ]
