"""Pack definitions for the scheduler, and check them on arrival as strictly as an `App` does."""

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from headway_contract.fields import INPUT_LIMIT, check_manifest_id, check_name
from headway_contract.fitting import fit, show
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
    """The message does not contain definitions, or they are too large."""


def pack(definitions: Definitions) -> bytes:
    """Encode and compress definitions."""
    return zlib.compress(msgspec.json.encode(definitions))


def unpack(packed: bytes) -> Definitions:
    """Decompress and decode definitions, within a limit: a small message may be a zip bomb."""
    unpacker = zlib.decompressobj()
    try:
        body = unpacker.decompress(packed, MOST_BYTES)
    except zlib.error as error:
        raise UnreadableDefinitions(f"not definitions: {error}") from error
    if unpacker.unconsumed_tail:
        raise UnreadableDefinitions(f"the definitions are larger than {MOST_BYTES} bytes")
    if not unpacker.eof:
        raise UnreadableDefinitions("not definitions: the message is truncated")
    try:
        return msgspec.json.decode(body, type=Definitions)
    except msgspec.DecodeError as error:
        problems = [f"not definitions: {error}"]
        with suppress(msgspec.DecodeError, RecursionError):
            problems = problems_of_body(body)
        raise UnreadableDefinitions("\n".join(problems)) from error


# The kind, the name and the type of the definitions in each part.
_PARTS: dict[str, tuple[str, str, type[Struct]]] = {
    "groups": ("group", "name", GroupDefinition),
    "jobs": ("job", "name", JobDefinition),
    "manifests": ("manifest", "external_id", ManifestDefinition),
    "batches": ("batch", "name", Batch),
}


def problems_of(definitions: Definitions) -> list[str]:
    """Return all problems of definitions, without what the scheduler has stored."""
    found = list(_names(definitions))
    for part, (kind, key, _) in _PARTS.items():
        names = Counter(getattr(definition, key) for definition in getattr(definitions, part))
        found += [
            f"{kind} {name!r} is defined {times} times: leave all but one out"
            for name, times in names.items()
            if times > 1
        ]
    for group in definitions.groups:
        found += checks.problems_of_group("", group)
    for job in definitions.jobs:
        unusable = problem_of_schema(job.input_schema)
        wrong = [] if unusable is None else [f"its input schema is not usable: {unusable}"]
        wrong += checks.problems_of_job(job)
        found += [f"job {job.name!r}: {problem}" for problem in wrong]
    timings = checks.TimingChecks()
    jobs = {job.name: job for job in definitions.jobs}
    batches = {batch.name for batch in definitions.batches}
    for manifest in definitions.manifests:
        called = f"manifest {manifest.external_id!r}"
        wrong = [*timings.problems_of(manifest.timing), *_manifest(manifest, batches)]
        wrong += _input(manifest, jobs.get(manifest.job))
        found += [f"{called}: {problem}" for problem in wrong]
        checked = {"timing", "input", "concurrency_key"} if wrong else set[str]()
        found += [f"{called}: {misfit}" for misfit in checks.misfits_of(manifest, checked)]
    return list(dict.fromkeys(found))


def problems_of_body(body: bytes) -> list[str]:
    """Return all problems of JSON that does not fit definitions; fields that fit are checked."""
    given = msgspec.json.decode(body)
    if not isinstance(given, Mapping):
        return [f"not definitions: {show(given)} is not a mapping"]
    parts = {name: given[name] for name in _PARTS if name in given}
    rest = fit({name: given[name] for name in given if name not in parts}, Definitions)
    found = [f"not definitions: {misfit}" for misfit in rest.misfits]
    sound: dict[str, tuple[Any, ...]] = {}
    for name, stated in parts.items():
        if not isinstance(stated, list):
            found.append(f"not definitions: {name} {show(stated)} is not valid: use a list")
            continue
        kind, key, struct = _PARTS[name]
        fitted = [fit(part, struct) for part in stated]
        for part, result in zip(stated, fitted, strict=True):
            found += [f"{_called(kind, key, part)}: {misfit}" for misfit in result.misfits]
        sound[name] = tuple(result.value for result in fitted if result.value is not None)
    readable = Definitions(owner=API_OWNER) if rest.value is None else rest.value
    return list(dict.fromkeys(found + problems_of(structs.replace(readable, **sound))))


def _called(kind: str, key: str, given: Any) -> str:
    """Name a group, job, manifest or batch for a message, if it has a name."""
    name = given.get(key) if isinstance(given, Mapping) else None
    return f"{kind} {show(name)}" if name is not None else f"a {kind}"


def _names(definitions: Definitions) -> Iterator[str]:
    named = [("job", job.name) for job in definitions.jobs]
    named += [("group", job.terms.group) for job in definitions.jobs if job.terms.group is not None]
    named += [("batch", batch.name) for batch in definitions.batches]
    named += [("group", manifest.group) for manifest in definitions.manifests]
    named += [("job", manifest.job) for manifest in definitions.manifests]
    if definitions.owner != API_OWNER:
        named.append(("app", definitions.owner))
    for kind, name in dict.fromkeys(named):
        yield from checks.problem_raised(check_name, kind, name)
    for manifest in definitions.manifests:
        yield from checks.problem_raised(check_manifest_id, manifest.external_id)


def _manifest(manifest: ManifestDefinition, batches: set[str]) -> Iterator[str]:
    if manifest.depends_on is not None and not isinstance(manifest.timing.cadence, Manual):
        yield "it has a cadence and a depends_on: a dependent fires at its parent's success alone"
    if manifest.depends_on == manifest.external_id:
        yield "it depends on itself: name another parent"
    if manifest.dormant and manifest.depends_on is None:
        yield "it is dormant and has no parent: give it a depends_on"
    if isinstance(manifest.timing.cadence, Manual):
        useless = {
            "timing.exclusions": bool(manifest.timing.exclusions),
            "jitter_seconds": bool(manifest.jitter_seconds),
            "misfire": manifest.misfire != Misfire(),
        }
        for name in [name for name, stated in useless.items() if stated]:
            yield f"{name} has no effect on a cadence that never fires by itself: leave it out"
    yield from checks.problems_of_key(manifest)
    if manifest.batch is not None and manifest.batch not in batches:
        yield f"it names the batch {manifest.batch!r}, which is not among the batches: add it there"


def _input(manifest: ManifestDefinition, job: JobDefinition | None) -> Iterator[str]:
    """Check an input; the scheduler checks inputs of jobs that it has stored."""
    size = len(msgspec.json.encode(manifest.input))
    if size > INPUT_LIMIT:
        yield checks.INPUT_TOO_LARGE
    elif job is not None:
        problem = problem_of_input(job.input_schema, job.takes_input, manifest.input)
        if problem is not None:
            yield f"its input does not fit job {manifest.job!r}: {problem}"
