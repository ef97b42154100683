"""Activate dormant dependents: a request of a parent's run becomes an owed decision."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headway.define.inputs import problem_of_input
from headway_contract.lifecycle import Activation
from headway_contract.settled import ActivationRequested, WorkSettled
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.firing import identity
from headway_postgres_kit import Connection

from headway_scheduler.declare.checks import retired_message
from headway_scheduler.fire.decide import LedgerRow, concurrency_key
from headway_scheduler.fire.tick import reschedule_wake, write_ledger
from headway_scheduler.store import lock_manifests, manifests

# An outcome repeats the activations of its run.
Activating = ActivationRequested | WorkSettled


async def activate(
    connection: Connection, requests: Sequence[Activating], *, now: datetime
) -> datetime | None:
    """Record each activation once, as owed; returns when the tick must look at the dependents."""
    wanted = [(request, activation) for request in requests for activation in request.activations]
    if not wanted:
        return None
    targets = await _targets(connection, {activation.manifest for _, activation in wanted})
    rows = [
        LedgerRow.owed(
            target["id"],
            identity.activation_cause(request.work, activation.key),
            now,
            # Without an input, the work has the input of the dependent.
            has_input=activation.input is not None,
            input=activation.input,
        )
        for request, activation in wanted
        if (target := targets.get(activation.manifest)) is not None
        and _problem(target, request.manifest_id) is None
    ]
    locked = await lock_manifests(connection, [row.manifest for row in rows])
    await write_ledger(connection, [row for row in rows if row.manifest in locked], now=now)
    return await reschedule_wake(connection, locked, now=now)


async def targets_of(connection: Connection, requests: Sequence[Activating]) -> set[UUID]:
    """Return the manifests that activations name."""
    named = {activation.manifest for request in requests for activation in request.activations}
    found = await _targets(connection, named) if named else {}
    return {row["id"] for row in found.values()}


async def problems(
    connection: Connection, parent: str, activations: Sequence[Activation]
) -> list[str]:
    """Return why runs of a manifest may not activate these dependents, a line each."""
    targets = await _targets(connection, {parent, *(each.manifest for each in activations)})
    if parent not in targets:
        return [f"manifest {parent!r} of this run is not known: it may have been deleted"]
    found = []
    for activation in activations:
        target = targets.get(activation.manifest)
        problem: str | None = "there is no such manifest"
        if target is not None:
            problem = _problem(target, targets[parent]["id"])
            if problem is None and target["retired_at"] is not None:
                problem = retired_message(target["job"], target["retired_at"])
            if problem is None and activation.input is not None:
                problem = _input_problem(target, activation.input)
        if problem is not None:
            found.append(f"cannot activate {activation.manifest!r}: {problem}")
    return found


async def _targets(connection: Connection, external_ids: set[str]) -> dict[str, Any]:
    rows = await connection.fetch(manifests["targets"], list(external_ids))
    return {row["external_id"]: row for row in rows}


def _problem(target: Any, parent: UUID | None) -> str | None:
    if not target["dormant"]:
        return "it is not dormant; declare it with dormant=True"
    if target["depends_on"] != parent:
        return "it is no dependent of the manifest of this run"
    return None


def _input_problem(target: Any, work_input: Any) -> str | None:
    """Return why a dependent cannot have work with an input, or `None`."""
    problem = problem_of_input(target["input_schema"], target["takes_input"], work_input)
    if problem is not None:
        return problem
    try:
        concurrency_key(
            target["concurrency_key"],
            input=work_input,
            manifest=target["external_id"],
            group=target["group_name"],
            job=target["job"],
        )
    except InvalidKey as error:
        return str(error)
    return None
