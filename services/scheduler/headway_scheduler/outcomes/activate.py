"""Waking dormant dependents: what a parent's run asked for becomes work, or stays owed."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway.define.inputs import problem_of_input
from headway_contract.lifecycle import Activation
from headway_contract.settled import ActivationRequested
from headway_decisions.capacity.keys import InvalidKey, render_key
from headway_decisions.firing import identity, manifest_state
from headway_postgres_kit import Connection

from headway_scheduler.declare.checks import retired_message
from headway_scheduler.fire.decide import reschedule_wake
from headway_scheduler.fire.manifest import LedgerRow
from headway_scheduler.fire.record import write_ledger
from headway_scheduler.store import lock_manifests, manifests


async def activate(
    connection: Connection, requests: Sequence[ActivationRequested], *, now: datetime
) -> datetime | None:
    """Record activations with their inputs, each once; they are owed until there is room.

    Tells when the tick has to look for that.
    """
    wanted = [(request, one) for request in requests for one in request.activations]
    if not wanted:
        return None
    targets = await _targets(connection, [one.manifest for _, one in wanted])
    rows = [
        _row(targets[one.manifest], request, one, now)
        for request, one in wanted
        if one.manifest in targets and _problem(targets[one.manifest], request.manifest_id) is None
    ]
    locked = await lock_manifests(connection, [row.manifest for row in rows])
    await write_ledger(connection, [row for row in rows if row.manifest in locked], now=now)
    return await reschedule_wake(connection, locked, now=now)


async def targets_of(connection: Connection, requests: Sequence[ActivationRequested]) -> set[UUID]:
    """The manifests that activations name."""
    named = {one.manifest for request in requests for one in request.activations}
    if not named:
        return set()
    return {row["id"] for row in (await _targets(connection, list(named))).values()}


async def problems(
    connection: Connection, parent: str, activations: Sequence[Activation]
) -> list[str]:
    """What keeps the runs of a manifest from waking these dependents, a line each."""
    targets = await _targets(connection, [parent, *(one.manifest for one in activations)])
    if parent not in targets:
        return [f"manifest {parent!r}, whose run asks, is not known: it may have been deleted"]
    found = []
    for one in activations:
        target = targets.get(one.manifest)
        if target is None:
            found.append(f"cannot activate {one.manifest!r}: there is no such manifest")
            continue
        problem = _problem(target, targets[parent]["id"])
        if problem is None and target["retired_at"] is not None:
            problem = retired_message(target["job"], target["retired_at"])
        if problem is None and one.input is not None:
            problem = _problem_of_input(target, one.input)
        if problem is not None:
            found.append(f"cannot activate {one.manifest!r}: {problem}")
    return found


async def _targets(connection: Connection, external_ids: Sequence[str]) -> dict[str, Any]:
    rows = await connection.fetch(manifests["targets"], list(set(external_ids)))
    return {row["external_id"]: row for row in rows}


def _problem(target: Any, parent: UUID) -> str | None:
    if not target["dormant"]:
        return "it is not dormant; declare it with dormant=True"
    if target["depends_on"] != parent:
        return "it is no dependent of the manifest whose run asks"
    return None


def _problem_of_input(target: Any, given: Any) -> str | None:
    """What keeps a dependent's work from being made with an input."""
    problem = problem_of_input(target["input_schema"], target["takes_input"], given)
    if problem is not None or target["concurrency_key"] is None:
        return problem
    try:
        render_key(
            target["concurrency_key"],
            input=given,
            manifest=target["external_id"],
            group=target["group_name"],
            job=target["job"],
        )
    except InvalidKey as error:
        return str(error)
    return None


def _row(target: Any, request: ActivationRequested, one: Activation, now: datetime) -> LedgerRow:
    return LedgerRow(
        manifest=target["id"],
        cause=identity.activation_cause(request.work, one.key),
        first_due_at=now,
        last_due_at=now,
        decision="owed",
        reason=manifest_state.AWAITS_ROOM,
        # Without one the dependent's own input is taken.
        has_input=one.input is not None,
        input=one.input,
    )
