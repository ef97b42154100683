"""What can be wrong with declarations, each problem in one line that names its remedy."""

from collections.abc import Iterable, Iterator
from itertools import groupby

import msgspec
from headway_contract.limits import INPUT_LIMIT
from headway_contract.names import InvalidName, check_manifest_id, check_name
from headway_decisions import timing as timings
from headway_decisions.keys import InvalidKey, check_template
from headway_decisions.lineage import find_cycles
from headway_decisions.timing import Timing

from headway import limits
from headway.declarations import Draft
from headway.definitions import GroupDefinition, JobDefinition, ManifestDefinition
from headway.jobs import DeclaredJob, holds_nul

_LOST_IN_JSON = (
    "does not come back from JSON as it went in: NaN and infinity cannot be sent, "
    "write them as text"
)


class TimingChecks:
    """Checks timings, equal ones only once: a batch has thousands of them."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[str]] = {}

    def problems_of(self, timing: Timing) -> list[str]:
        """Everything that is wrong with a timing."""
        try:
            encoded = msgspec.json.encode(timing)
        except (TypeError, ValueError) as error:
            return [str(error)]
        if encoded not in self._known:
            self._known[encoded] = timings.problems(timing)
        return self._known[encoded]


def problems_of_manifest(
    draft: Draft, manifest: ManifestDefinition, job: DeclaredJob, *, timing_is_sound: bool
) -> list[str]:
    """What is wrong with a manifest besides its timing."""
    problems = []
    for check, name in ((check_manifest_id, manifest.external_id), (_check_group, manifest.group)):
        try:
            check(name)
        except InvalidName as error:
            problems.append(f"{draft.where}{error}")
    problems += _problems_of_input(draft.called, manifest, job)
    if not problems:
        problems += [f"{draft.called}: {one}" for one in problems_of_key(manifest)]
    if not problems and timing_is_sound:
        problems += problems_of_storing(draft.called, manifest)
    return problems


def problems_of_key(manifest: ManifestDefinition) -> Iterator[str]:
    """Why the concurrency key of a manifest cannot be made of its input."""
    problem = limits.problem_of_key(
        manifest.concurrency_key,
        given=manifest.input,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
        must_fit=not manifest.dormant,
    )
    if problem is not None:
        yield problem


def _check_group(name: object) -> str:
    return check_name("group", name)


def _problems_of_input(called: str, manifest: ManifestDefinition, job: DeclaredJob) -> list[str]:
    trouble = job.problem_of_input(manifest.input)
    try:
        encoded = msgspec.json.encode(manifest.input)
        survives = trouble or msgspec.json.decode(encoded) == manifest.input
    except (TypeError, ValueError, RecursionError) as error:
        return [f"{called}: its input does not fit job {job.name!r}: {error}"]
    if trouble:
        return [f"{called}: its input does not fit job {job.name!r}: {trouble}"]
    if not survives:
        return [f"{called}: its input {_LOST_IN_JSON}"]
    if len(encoded) > INPUT_LIMIT:
        return [f"{called}: its input is larger than {INPUT_LIMIT} bytes: send where it is found"]
    return []


def problems_of_ids(drafts: Iterable[Draft]) -> Iterator[str]:
    """Ids that are not unique."""
    by_id = sorted(drafts, key=lambda draft: str(draft.external_id))
    for external_id, found in groupby(by_id, key=lambda draft: draft.external_id):
        same = list(found)
        if len(same) > 1:
            yield _not_unique(external_id, same)


def _not_unique(external_id: str, same: list[Draft]) -> str:
    first, second = same[0], same[1]
    if first.decorated and second.decorated and first.job == second.job:
        if first.when == second.when:
            return (
                f"job {first.job!r} has the same cadence twice, which gives two manifests "
                f"{external_id!r}: remove one"
            )
        return (
            f"job {first.job!r} has two cadences that are both called {external_id!r}: they "
            "differ only in what names leave out (zone, start, end, exclusions, jitter, "
            "policies); give one of them a name="
        )
    return (
        f"{second.where}two manifests have the id {external_id!r}: give one of them another id, "
        "or a name= to its cadence"
    )


def problems_of_parents(drafts: list[Draft]) -> list[str]:
    """Dependents whose parent is not declared, or that wait for themselves."""
    known = {draft.external_id for draft in drafts}
    problems = [
        f"{draft.called} depends on {draft.depends_on!r}, which this app does not declare: "
        "declare it, or name another parent"
        for draft in drafts
        if draft.depends_on is not None and draft.depends_on not in known
    ]
    parents = {draft.external_id: draft.depends_on for draft in drafts if draft.depends_on}
    return problems + [
        f"manifests wait for each other: {' → '.join(reversed(cycle))}: "
        "hang one of them on another parent"
        for cycle in find_cycles(parents)
    ]


def problems_of_group(where: str, group: GroupDefinition) -> list[str]:
    """What is wrong with the settings of a group."""
    try:
        check_name("group", group.name)
    except InvalidName as error:
        return [f"{where}{error}"]
    return problems_of_storing(f"{where}group {group.name!r}", group)


def problems_of_two_statements(
    where: str, known: GroupDefinition, stated: GroupDefinition
) -> Iterator[str]:
    """Settings of a group that were stated before with another value."""
    for setting in ("max_active", "priority", "enabled", "rate"):
        before, now = getattr(known, setting), getattr(stated, setting)
        if None not in (before, now) and before != now:
            yield (
                f"{where}group {stated.name!r} states {setting} twice, as {before} and as {now}: "
                "state it once"
            )


def problems_of_generation(generation: object) -> list[str]:
    """What is wrong with the number of a roll-out."""
    if isinstance(generation, int) and not isinstance(generation, bool) and generation >= 0:
        return []
    return [f"generation {generation!r} is not valid: use a whole number from 0 on"]


def problems_of_job(called: str, job: JobDefinition) -> list[str]:
    """What keeps a job from being stored, or its work from getting its concurrency key."""
    problems = problems_of_storing(called, job)
    if not problems and job.concurrency_key is not None:
        try:
            check_template(job.concurrency_key)
        except InvalidKey as error:
            problems.append(f"{called}: {error}")
    return problems


def problems_of_storing(called: str, definition: msgspec.Struct) -> list[str]:
    """What keeps a definition from coming back from the database as it went in."""
    try:
        encoded = msgspec.json.encode(definition)
        msgspec.json.decode(encoded, type=type(definition))
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        return [f"{called}: {error}"]
    if holds_nul(encoded):
        return [f"{called}: it holds a NUL character, which cannot be stored"]
    return []
