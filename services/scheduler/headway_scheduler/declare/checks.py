"""What only the scheduler can say about definitions: how they go with what is stored."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from headway.define.checks import problems_of_key
from headway.define.definitions import (
    API_OWNER,
    Definitions,
    InvalidDefinitions,
    ManifestDefinition,
)
from headway.define.inputs import problem_of_input
from headway_decisions.declaring.lineage import find_cycles
from headway_decisions.timing import timing
from headway_postgres_kit import Connection

from headway_scheduler.declare.first_times import past_in_words
from headway_scheduler.declare.retired_jobs import retired
from headway_scheduler.store import manifests


class ForeignDefinitions(InvalidDefinitions):
    """They would take what another application has."""


async def refuse_problems(
    connection: Connection,
    definitions: Definitions,
    known: Mapping[str, Any],
    found: Sequence[str] = (),
    *,
    retimed: Sequence[ManifestDefinition],
    now: datetime,
) -> None:
    """Raise `InvalidDefinitions` with every problem, those that were found before included.

    `retimed` are the manifests whose timing is new. An old one that has run out since it was
    declared must not keep its application from starting.
    """
    foreign = [*_foreign(definitions, known), *await _foreign_jobs(connection, definitions)]
    problems = [
        *found,
        *await asyncio.to_thread(_timings, retimed, now),
        *_past(definitions, retimed, now),
        *foreign,
        *await _jobs(connection, definitions, known),
        *await _parents(connection, definitions),
    ]
    if problems:
        kind = ForeignDefinitions if foreign else InvalidDefinitions
        raise kind(list(dict.fromkeys(problems)))


def _timings(retimed: Sequence[ManifestDefinition], now: datetime) -> list[str]:
    """Timings that never fire from now on: only here it is known when they are declared."""
    # Thousands of manifests share a few timings.
    known = {one: timing.problems(one, since=now) for one in {one.timing for one in retimed}}
    return [
        f"manifest {one.external_id!r}: {problem}"
        for one in retimed
        for problem in known[one.timing]
    ]


def _past(
    definitions: Definitions, retimed: Sequence[ManifestDefinition], now: datetime
) -> list[str]:
    """One-shots whose time is past: code may still hold them, but nobody asks for them now."""
    return past_in_words(retimed, now) if definitions.owner == API_OWNER else []


def _foreign(definitions: Definitions, known: Mapping[str, Any]) -> list[str]:
    """Two applications share a database; neither takes a manifest from the other."""
    return [
        f"manifest {one.external_id!r} {_whose(known[one.external_id].owner, one.external_id)}"
        for one in definitions.manifests
        if one.external_id in known and known[one.external_id].owner != definitions.owner
    ]


def _whose(owner: str, external_id: str) -> str:
    if owner == API_OWNER:
        remedy = f"give this one another id, or delete that one ('headway delete {external_id}')"
        return f"was made at run time and belongs to no application: {remedy}"
    return f"belongs to the application {owner!r}: give it another id"


async def _foreign_jobs(connection: Connection, definitions: Definitions) -> list[str]:
    """Two applications may share a job, if they mean the same."""
    own = {job.name: job for job in definitions.jobs}
    rows = await connection.fetch(manifests["jobs"], list(own))
    declared = {row["name"]: row for row in rows}
    return [
        f"job {name!r} is declared by the application {declared[name]['owner']!r} with another "
        "input: give one of them another name"
        for name, job in own.items()
        if name in declared
        and declared[name]["retired_at"] is None
        and declared[name]["owner"] != definitions.owner
        and (declared[name]["input_schema"], declared[name]["takes_input"])
        != (job.input_schema, job.takes_input)
    ]


async def _jobs(
    connection: Connection, definitions: Definitions, known: Mapping[str, Any]
) -> list[str]:
    """Jobs that this app does not declare itself must be declared by another, and fit.

    A job may retire under a manifest, but no manifest is made or changed to use a retired one.
    """
    own = {job.name for job in definitions.jobs}
    named = {one.job for one in definitions.manifests} - own
    rows = await connection.fetch(manifests["jobs"], list(named))
    declared = {row["name"]: row for row in rows}
    problems: list[str] = []
    for one in definitions.manifests:
        if one.job not in own:
            problems += _elsewhere(one, declared.get(one.job), known.get(one.external_id))
    return problems


def _elsewhere(one: ManifestDefinition, job: Any, stored: Any) -> list[str]:
    """What is wrong with a manifest of a job that another app declares."""
    if job is None:
        remedy = "start the application that has it first, or correct the name"
        named = f"manifest {one.external_id!r} names the job {one.job!r}, which nobody declared"
        return [f"{named}: {remedy}"]
    called = f"manifest {one.external_id!r}"
    if job["retired_at"] is not None and (
        stored is None or stored.definition_hash != one.fingerprint()
    ):
        return [f"{called}: {retired(one.job, job['retired_at'])}"]
    problem = problem_of_input(job["input_schema"], job["takes_input"], one.input)
    if problem is not None:
        return [f"{called}: its input does not fit job {one.job!r}: {problem}"]
    if "concurrency_key" not in one.inherited:
        return []  # told with the definition
    return [f"{called}: {problem}" for problem in problems_of_key(one)]


async def _parents(connection: Connection, definitions: Definitions) -> list[str]:
    """Parents exist, and nobody is an ancestor of itself, stored manifests included."""
    parents: dict[str, str | None] = {
        one.external_id: one.depends_on for one in definitions.manifests
    }
    elsewhere = {name for name in parents.values() if name is not None and name not in parents}
    rows = await connection.fetch(manifests["ids_of"], list(elsewhere))
    found = {row["external_id"]: row["id"] for row in rows}
    problems = [
        f"manifest {one.external_id!r} depends on {one.depends_on!r}, which does not exist"
        for one in definitions.manifests
        if one.depends_on in elsewhere and one.depends_on not in found
    ]
    line = await connection.fetch(manifests["parents_of"], list(found.values()))
    stored = {row["external_id"]: row["parent"] for row in line}
    cycles = find_cycles({**parents, **stored, **parents})
    return problems + [
        f"manifests depend on each other in a circle: {' → '.join(reversed(cycle))}"
        for cycle in cycles
    ]
