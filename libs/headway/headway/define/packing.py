"""Definitions as they travel to the scheduler: packed, and checked when they arrive.

The checks are as strict as those of an `App`. An `App` cannot express most of what they refuse;
another program can.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from headway_contract.fitting import fit, show
from headway_contract.limits import INPUT_LIMIT
from headway_contract.names import InvalidName, check_manifest_id, check_name
from headway_decisions.firing.manifest_state import Misfire
from headway_decisions.timing.cadence import Manual
from msgspec import Struct, structs

from headway.define import checks
from headway.define.definitions import (
    API_OWNER,
    Batch,
    Definitions,
    GroupDefinition,
    JobDefinition,
    ManifestDefinition,
)
from headway.define.inputs import problem_of_input, problem_of_schema

MOST_BYTES = 64 * 1024**2


class UnreadableDefinitions(Exception):
    """What came are no definitions, or too many."""


def pack(definitions: Definitions) -> bytes:
    """Definitions as they travel."""
    return zlib.compress(msgspec.json.encode(definitions))


def unpack(packed: bytes) -> Definitions:
    """Read definitions that came over the wire; a small message may unpack to a huge one."""
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, MOST_BYTES)
    except zlib.error as error:
        raise UnreadableDefinitions(f"not definitions: {error}") from error
    if unpacker.unconsumed_tail:
        raise UnreadableDefinitions(f"the definitions are larger than {MOST_BYTES} bytes")
    if not unpacker.eof:
        raise UnreadableDefinitions("not definitions: they end too early")
    try:
        return msgspec.json.decode(body, type=Definitions)
    except msgspec.ValidationError as error:
        try:
            problems = problems_of_body(body)
        except (msgspec.DecodeError, RecursionError):  # it is no better further on
            problems = [f"not definitions: {error}"]
        raise UnreadableDefinitions("\n".join(problems)) from error
    except msgspec.DecodeError as error:
        raise UnreadableDefinitions(f"not definitions: {error}") from error


_PARTS: dict[str, type[Struct]] = {
    "groups": GroupDefinition,
    "jobs": JobDefinition,
    "manifests": ManifestDefinition,
    "batches": Batch,
}


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
        told = {"timing", "input", "concurrency_key"} if wrong else set[str]()
        found += [f"manifest {one.external_id!r}: {each}" for each in checks.misfits_of(one, told)]
    return list(dict.fromkeys(found))


def problems_of_body(body: bytes) -> list[str]:
    """Everything that is wrong with JSON that is no definitions, a line each.

    What does not fit is told, and all else is looked at as if it were not there.
    """
    given = msgspec.json.decode(body)
    if not isinstance(given, Mapping):
        return [f"not definitions: {show(given)} is no mapping"]
    parts = {name: given[name] for name in _PARTS if name in given}
    rest = fit({name: given[name] for name in given if name not in parts}, Definitions)
    found = [f"not definitions: {one}" for one in rest.misfits]
    sound: dict[str, tuple[Any, ...]] = {}
    for name, stated in parts.items():
        if not isinstance(stated, list):
            found.append(f"not definitions: {name} {show(stated)} is not valid: use a list")
            continue
        read = [(one, fit(one, _PARTS[name])) for one in stated]
        found += [f"{_called(name, one)}: {each}" for one, made in read for each in made.misfits]
        sound[name] = tuple(made.value for _, made in read if made.value is not None)
    readable = Definitions(owner=API_OWNER) if rest.value is None else rest.value
    return list(dict.fromkeys(found + problems_of(structs.replace(readable, **sound))))


def _called(part: str, given: Any) -> str:
    """One of the parts of definitions in the words of a problem, as far as it has a name."""
    kind = {"batches": "batch"}.get(part, part.removesuffix("s"))
    key = "external_id" if part == "manifests" else "name"
    name = given.get(key) if isinstance(given, Mapping) else None
    return f"{kind} {show(name)}" if name is not None else f"a {kind}"


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
    unusable = [] if wrong is None else [f"{called}: its input schema is not usable: {wrong}"]
    return unusable + checks.problems_of_job(called, job)


def _manifest(one: ManifestDefinition, batches: set[str]) -> Iterator[str]:
    if one.depends_on is not None and not isinstance(one.timing.cadence, Manual):
        yield "it has a cadence and a depends_on: a dependent fires at its parent's success alone"
    if one.depends_on == one.external_id:
        yield "it depends on itself: name another parent"
    if one.dormant and one.depends_on is None:
        yield "it is dormant and has no parent whose runs could wake it: give it a depends_on"
    yield from _without_meaning(one)
    yield from checks.problems_of_key(one)
    if one.batch is not None and one.batch not in batches:
        yield f"it names the batch {one.batch!r}, which is not among the batches: add it there"


def _without_meaning(one: ManifestDefinition) -> Iterator[str]:
    """Terms of fire times, stated for what has none."""
    if not isinstance(one.timing.cadence, Manual):
        return
    stated = {
        "timing.exclusions": bool(one.timing.exclusions),
        "jitter_seconds": bool(one.jitter_seconds),
        "misfire": one.misfire != Misfire(),
    }
    for name in [name for name, given in stated.items() if given]:
        yield f"{name} has no meaning for a cadence that never fires by itself: leave it out"


def _input(one: ManifestDefinition, job: JobDefinition | None) -> Iterator[str]:
    """Whether the input fits; a job that is declared elsewhere is the scheduler's to check."""
    size = len(msgspec.json.encode(one.input))
    if size > INPUT_LIMIT:
        yield f"its input is larger than {INPUT_LIMIT} bytes: send where it is found"
    elif job is not None:
        problem = problem_of_input(job.input_schema, job.takes_input, one.input)
        if problem is not None:
            yield f"its input does not fit job {one.job!r}: {problem}"
