"""Definitions that came over the wire, checked as strictly as those of an `App`.

An `App` cannot express most of what is refused here; another program can.
"""

from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec
from headway_contract.limits import INPUT_LIMIT
from headway_contract.names import InvalidName, check_manifest_id, check_name
from headway_decisions.cadence import Manual

from headway import checks
from headway.definitions import (
    API_OWNER,
    Definitions,
    JobDefinition,
    ManifestDefinition,
)
from headway.inputs import problem_of_input, problem_of_schema


def problems_of(definitions: Definitions) -> list[str]:
    """Everything that is wrong with definitions by themselves, a line each."""
    found = [
        *_names(definitions),
        *_repeated("group", (group.name for group in definitions.groups)),
        *_repeated("job", (job.name for job in definitions.jobs)),
        *_repeated("batch", (batch.name for batch in definitions.batches)),
        *_repeated("manifest", (one.external_id for one in definitions.manifests)),
    ]
    for group in definitions.groups:
        found += checks.problems_of_group("", group)
    for job in definitions.jobs:
        found += _job(job)
    timings = checks.TimingChecks()
    jobs = {job.name: job for job in definitions.jobs}
    batches = {batch.name for batch in definitions.batches}
    for one in definitions.manifests:
        wrong = [*timings.problems_of(one.timing), *_manifest(one, batches)]
        wrong += _input(one, jobs.get(one.job))
        found += [f"manifest {one.external_id!r}: {problem}" for problem in wrong]
        if not wrong:
            found += checks.problems_of_storing(f"manifest {one.external_id!r}", one)
    return list(dict.fromkeys(found))


def _names(definitions: Definitions) -> Iterator[str]:
    named = [("job", job.name) for job in definitions.jobs]
    named += [("group", job.terms.group) for job in definitions.jobs if job.terms.group is not None]
    named += [("batch", batch.name) for batch in definitions.batches]
    named += [("group", one.group) for one in definitions.manifests]
    named += [("job", one.job) for one in definitions.manifests]
    if definitions.owner != API_OWNER:
        named.append(("app", definitions.owner))
    for kind, name in dict.fromkeys(named):
        try:
            check_name(kind, name)
        except InvalidName as error:
            yield str(error)
    for one in definitions.manifests:
        try:
            check_manifest_id(one.external_id)
        except InvalidName as error:
            yield str(error)


def _repeated(kind: str, names: Iterable[str]) -> list[str]:
    return [
        f"{kind} {name!r} is defined {times} times: leave all but one out"
        for name, times in Counter(names).items()
        if times > 1
    ]


def _job(job: JobDefinition) -> list[str]:
    called = f"job {job.name!r}"
    wrong = problem_of_schema(job.input_schema)
    if wrong is not None:
        return [f"{called}: its input schema is not usable: {wrong}"]
    return checks.problems_of_job(called, job)


def _manifest(one: ManifestDefinition, batches: set[str]) -> Iterator[str]:
    if one.depends_on is not None and not isinstance(one.timing.cadence, Manual):
        yield "it has a cadence and a depends_on: a dependent fires at its parent's success alone"
    if one.depends_on == one.external_id:
        yield "it depends on itself: name another parent"
    if one.dormant and one.depends_on is None:
        yield "it is dormant and has no parent whose runs could wake it: give it a depends_on"
    yield from checks.problems_of_key(one)
    if one.batch is not None and one.batch not in batches:
        yield f"it names the batch {one.batch!r}, which is not among the batches: add it there"


def _input(one: ManifestDefinition, job: JobDefinition | None) -> Iterator[str]:
    """Whether the input fits; a job that is declared elsewhere is the scheduler's to check."""
    size = len(msgspec.json.encode(one.input))
    if size > INPUT_LIMIT:
        yield f"its input is larger than {INPUT_LIMIT} bytes: send where it is found"
    elif job is not None:
        problem = problem_of_input(job.input_schema, job.takes_input, one.input)
        if problem is not None:
            yield f"its input does not fit job {one.job!r}: {problem}"
