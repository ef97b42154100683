"""Pack definitions for the scheduler, and check them on arrival as strictly as an `App` does."""

import zlib
from collections import Counter
from collections.abc import Iterator

import msgspec
from headway_contract.fields import check_manifest_id, check_name
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual

from headway.define import checks
from headway.define import definitions as kinds
from headway.define.inputs import problem_of_schema

MOST_BYTES = 64 * 1024**2


class UnreadableDefinitions(Exception):
    """The message does not contain definitions, or they are too large."""


def pack(definitions: kinds.Definitions) -> bytes:
    """Encode and compress definitions."""
    return zlib.compress(msgspec.json.encode(definitions))


def unpack(packed: bytes) -> kinds.Definitions:
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
        return msgspec.json.decode(body, type=kinds.Definitions)
    except msgspec.DecodeError as error:
        raise UnreadableDefinitions(f"not definitions: {error}") from error


def problems_of(definitions: kinds.Definitions) -> list[str]:
    """Return all problems of definitions, without what the scheduler has stored."""
    found = list(_names(definitions))
    defined = Counter(
        [
            *(f"group {group.name!r}" for group in definitions.groups),
            *(f"job {job.name!r}" for job in definitions.jobs),
            *(f"manifest {manifest.external_id!r}" for manifest in definitions.manifests),
            *(f"batch {batch.name!r}" for batch in definitions.batches),
        ]
    )
    found += [
        f"{called} is defined {times} times: leave all but one out"
        for called, times in defined.items()
        if times > 1
    ]
    for group in definitions.groups:
        found += checks.problems_of_group("", group)
    for job in definitions.jobs:
        unusable = problem_of_schema(job.input_schema)
        wrong = [] if unusable is None else [f"its input schema is not usable: {unusable}"]
        wrong += checks.problems_of_job(job)
        found += [f"job {job.name!r}: {problem}" for problem in wrong]
    jobs = {job.name: job for job in definitions.jobs}
    batches = {batch.name for batch in definitions.batches}
    for manifest in definitions.manifests:
        called = f"manifest {manifest.external_id!r}"
        wrong = [*timing.problems(manifest.timing), *_manifest(manifest, batches)]
        wrong += checks.problems_of_input(manifest, jobs.get(manifest.job))
        found += [f"{called}: {problem}" for problem in wrong]
        checked = {"timing", "input", "concurrency_key"} if wrong else set[str]()
        found += [f"{called}: {misfit}" for misfit in checks.misfits_of(manifest, checked)]
    return list(dict.fromkeys(found))


def _names(definitions: kinds.Definitions) -> Iterator[str]:
    named = [("job", job.name) for job in definitions.jobs]
    named += [("group", job.terms.group) for job in definitions.jobs if job.terms.group is not None]
    named += [("batch", batch.name) for batch in definitions.batches]
    named += [("group", manifest.group) for manifest in definitions.manifests]
    named += [("job", manifest.job) for manifest in definitions.manifests]
    if definitions.owner != kinds.API_OWNER:
        named.append(("app", definitions.owner))
    for kind, name in dict.fromkeys(named):
        yield from checks.problem_raised(check_name, kind, name)
    for manifest in definitions.manifests:
        yield from checks.problem_raised(check_manifest_id, manifest.external_id)


def _manifest(manifest: kinds.ManifestDefinition, batches: set[str]) -> Iterator[str]:
    if manifest.depends_on is not None and not isinstance(manifest.timing.cadence, Manual):
        yield "it has a cadence and a depends_on: a dependent fires at its parent's success alone"
    if manifest.depends_on == manifest.external_id:
        yield "it depends on itself: name another parent"
    if manifest.dormant and manifest.depends_on is None:
        yield "it is dormant and has no parent: give it a depends_on"
    yield from checks.useless_terms(manifest)
    yield from checks.problems_of_key(manifest)
    if manifest.batch is not None and manifest.batch not in batches:
        yield f"it names the batch {manifest.batch!r}, which is not among the batches: add it there"
