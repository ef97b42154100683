"""Check definitions against what is stored: owners, jobs, parents and times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from headway.define.checks import problems_of_key
from headway.define.definitions import (
    API_OWNER,
    Definitions,
    InvalidDefinitions,
    ManifestDefinition,
)
from headway.define.inputs import problem_of_input
from headway.define.packing import UnreadableDefinitions
from headway_decisions.declaring.lookup import find_cycles
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing
from headway_decisions.wording import utc
from headway_errors import Conflict, Invalid
from headway_postgres_kit import Connection
from msgspec import Struct

from headway_scheduler.declare.one_shots import past_messages
from headway_scheduler.store import manifests

# Manifests that a warning names.
_MOST_NAMED = 5


class ForeignDefinitions(InvalidDefinitions):
    """Definitions that name manifests or jobs of another application."""


@contextmanager
def request_errors() -> Iterator[None]:
    """Translate problems of definitions to the errors of a request."""
    try:
        yield
    except ForeignDefinitions as error:
        raise Conflict(str(error)) from error
    except (InvalidDefinitions, UnreadableDefinitions) as error:
        raise Invalid(str(error)) from error


class References(Struct, frozen=True, kw_only=True):
    """Stored rows that definitions refer to: jobs, parents that exist, and the parents of those."""

    jobs: dict[str, Any]
    parents: dict[str, UUID]
    parent_of: dict[str, str | None]


async def read_references(
    connection: Connection, definitions: Definitions, followers: Sequence[ManifestDefinition] = ()
) -> References:
    """Read the stored jobs that definitions name, and the parents, also those of followers."""
    named = {job.name for job in definitions.jobs}
    named |= {manifest.job for manifest in definitions.manifests}
    jobs = await connection.fetch(manifests["jobs"], list(named))
    parents = {manifest.depends_on for manifest in (*definitions.manifests, *followers)} - {None}
    parents -= {manifest.external_id for manifest in definitions.manifests}
    found = await connection.fetch(manifests["ids_of"], list(parents))
    above = await connection.fetch(manifests["parents_of"], [row["id"] for row in found])
    return References(
        jobs={row["name"]: row for row in jobs},
        parents={row["external_id"]: row["id"] for row in found},
        parent_of={row["external_id"]: row["parent"] for row in above},
    )


def refuse_problems(
    definitions: Definitions,
    known: Mapping[str, Any],
    references: References,
    retimed: Sequence[ManifestDefinition],
    now: datetime,
    found: Sequence[str] = (),
    timings: Mapping[Timing, list[str]] | None = None,
) -> None:
    """Raise `InvalidDefinitions` with every problem, also those that were `found` before.

    Only the timings of `retimed` manifests are checked: an old timing that has run out must not
    keep its application from starting. `timings` have the problems that are computed already.
    """
    own, jobs = {job.name for job in definitions.jobs}, references.jobs
    foreign = [*_foreign(definitions, known), *_foreign_jobs(definitions, jobs)]
    problems = [
        *found,
        *_timings(retimed, timings or {}, now),
        # Code may keep one-shots whose time is past; a request for one is a mistake.
        *(past_messages(retimed, now) if definitions.owner == API_OWNER else []),
        *foreign,
        # Manifests of jobs that another application declares.
        *(
            problem
            for manifest in definitions.manifests
            if manifest.job not in own
            for problem in _job_problems(
                manifest, jobs.get(manifest.job), known.get(manifest.external_id)
            )
        ),
        *_parents(definitions, references),
    ]
    if problems:
        kind = ForeignDefinitions if foreign else InvalidDefinitions
        raise kind(list(dict.fromkeys(problems)))


def timing_problems(timings: Iterable[Timing], now: datetime) -> dict[Timing, list[str]]:
    """Find timings that never fire from now on."""
    return {kept: timing.problems(kept, since=now) for kept in timings}


def _timings(
    retimed: Sequence[ManifestDefinition], known: Mapping[Timing, list[str]], now: datetime
) -> list[str]:
    # Thousands of manifests share a few timings.
    others = {manifest.timing for manifest in retimed} - known.keys()
    known = {**known, **timing_problems(others, now)}
    return [
        f"manifest {manifest.external_id!r}: {problem}"
        for manifest in retimed
        for problem in known[manifest.timing]
    ]


def _foreign(definitions: Definitions, known: Mapping[str, Any]) -> list[str]:
    """Find manifests that belong to another owner."""
    named = [manifest.external_id for manifest in definitions.manifests]
    owners = {name: known[name].owner for name in named if name in known}
    return [
        f"manifest {name!r} was made at run time and belongs to no application: give this one "
        f"another id, or delete that one ('headway delete {name}')"
        if owner == API_OWNER
        else f"manifest {name!r} belongs to the application {owner!r}: give it another id"
        for name, owner in owners.items()
        if owner != definitions.owner
    ]


def _foreign_jobs(definitions: Definitions, declared: Mapping[str, Any]) -> list[str]:
    """Find jobs that another application declares with another input."""
    return [
        f"job {job.name!r} is declared by the application {known['owner']!r} with another input: "
        "give one of them another name"
        for job in definitions.jobs
        if (known := declared.get(job.name)) is not None
        and known["retired_at"] is None
        and known["owner"] != definitions.owner
        and (known["input_schema"], known["takes_input"]) != (job.input_schema, job.takes_input)
    ]


def _job_problems(manifest: ManifestDefinition, job: Any, stored: Any) -> list[str]:
    """Check a manifest against a job of another application.

    A job may retire under a manifest, but no manifest is created or changed to use a retired job.
    """
    named = f"manifest {manifest.external_id!r}"
    if job is None:
        remedy = "start the application that has it first, or correct the name"
        return [f"{named} names the job {manifest.job!r}, which is not declared: {remedy}"]
    changes = stored is None or stored.definition_hash != manifest.fingerprint()
    if job["retired_at"] is not None and changes:
        return [f"{named}: {retired_message(manifest.job, job['retired_at'])}"]
    problem = problem_of_input(job["input_schema"], job["takes_input"], manifest.input)
    if problem is not None:
        return [f"{named}: its input does not fit job {manifest.job!r}: {problem}"]
    if "concurrency_key" not in manifest.inherited:
        return []  # the definition was checked with its own key
    return [f"{named}: {problem}" for problem in problems_of_key(manifest)]


def _parents(definitions: Definitions, references: References) -> list[str]:
    """Check that parents exist and that dependencies have no cycle, stored manifests included."""
    parents = {manifest.external_id: manifest.depends_on for manifest in definitions.manifests}
    known = {None, *parents, *references.parents}
    problems = [
        f"manifest {manifest.external_id!r} depends on {manifest.depends_on!r}, "
        "which does not exist"
        for manifest in definitions.manifests
        if manifest.depends_on not in known
    ]
    cycles = find_cycles({**parents, **references.parent_of, **parents})
    return problems + [
        f"manifests depend on each other in a circle: {' → '.join(reversed(cycle))}"
        for cycle in cycles
    ]


def retired_message(job: str, since: datetime) -> str:
    """Explain that a job is retired, with the remedy."""
    return (
        f"job {job!r} is retired, because no application declares it since {utc(since)}: declare "
        "the job again, or use another one"
    )


def retired_use_warnings(uses: Iterable[Any]) -> list[str]:
    """Warn about manifests of retired jobs, one line for each job; `uses` are sorted by job."""
    warnings = []
    for job, found in groupby(uses, key=lambda row: row["job"]):
        named = [_named(row) for row in found]
        more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
        warnings.append(
            f"job {job!r} is retired, because no application declares it, but manifests use it "
            f"and do not fire: {', '.join(named[:_MOST_NAMED])}{more}; declare the job again, or "
            "delete them"
        )
    return warnings


def _named(row: Any) -> str:
    if row["owner"] == API_OWNER:
        return f"{row['external_id']!r} (made at run time)"
    return f"{row['external_id']!r} (of application {row['owner']!r})"
