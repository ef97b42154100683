"""Checks of declarations. Each problem is one line that names its remedy."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import groupby

import msgspec
from headway_contract.fields import INPUT_LIMIT, InvalidName, check_manifest_id, check_name
from headway_contract.fitting import Misfit, find_misfits
from headway_decisions.capacity import keys
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.declaring.lookup import find_cycles
from headway_decisions.firing.manifest_state import Misfire
from headway_decisions.timing.cadence import Manual
from msgspec import Struct

from headway.define.declarations import Draft
from headway.define.definitions import GroupDefinition, JobDefinition, ManifestDefinition
from headway.define.jobs import DeclaredJob, holds_nul
from headway.define.when import UNREADABLE

# Fields that other checks report.
_CHECKED_ELSEWHERE = {"external_id", "group", "job", "concurrency_key", "depends_on", "batch"}


def problems_of_manifest(
    draft: Draft,
    manifest: ManifestDefinition,
    job: DeclaredJob,
    *,
    timing_is_sound: bool,
    inherited: Iterable[str] = (),
) -> list[str]:
    """Return the problems of a manifest besides its timing and those of its job and app."""
    problems = [f"{draft.where}{problem}" for problem in _problems_of_names(draft, manifest)]
    of_input = problems_of_input(manifest, job)
    checked = set(_CHECKED_ELSEWHERE)
    if of_input:
        checked.add("input")
    if not timing_is_sound:
        checked.add("timing")
    keys = problems_of_key(manifest, input_is_sound=not of_input)
    found = [("concurrency_key", problem) for problem in keys]
    found += [(misfit.path[0], str(misfit)) for misfit in misfits_of(manifest, checked)]
    wrong = [*_problems_of_parent(draft), *of_input]
    if draft.when != UNREADABLE:
        wrong += useless_terms(manifest)
    # A problem of the job or the app is repeated only if the manifest sets the same option.
    wrong += [problem for name, problem in found if problem not in inherited or name in draft.terms]
    return problems + [f"{draft.called}: {problem}" for problem in wrong]


def _problems_of_names(draft: Draft, manifest: ManifestDefinition) -> Iterator[str]:
    """Yield invalid names, except those derived from an invalid name of a job or a batch."""
    derived = [manifest.job] if draft.decorated else [draft.batch] if draft.batch else []
    if all(_is_name(name) for name in derived):
        yield from problem_raised(check_manifest_id, manifest.external_id)
    stated = draft.terms.get("group")
    if stated is not None and not (stated == draft.batch and not _is_name(draft.batch)):
        yield from problem_raised(check_name, "group", manifest.group)


def problem_raised(check: Callable[..., object], *given: object, **named: object) -> list[str]:
    """Return the problem that the check of a name or a key raises, if it does."""
    try:
        check(*given, **named)
    except (InvalidName, InvalidKey) as error:
        return [str(error)]
    return []


def _is_name(given: object) -> bool:
    return not problem_raised(check_name, "", given)


def _problems_of_parent(draft: Draft) -> Iterator[str]:
    """Yield the problems of a manifest that has not either a cadence or a parent."""
    if draft.depends_on is None:
        if draft.dormant:
            yield "it is dormant and has no parent: give it a depends_on"
        elif draft.when is None:
            yield "it has neither a cadence nor a parent: give it a depends_on"
    elif draft.when is not None:
        yield "it has both a cadence and a parent: leave one out"


def useless_terms(manifest: ManifestDefinition) -> Iterator[str]:
    """Yield terms of fire times that are set for a manifest without fire times."""
    if not isinstance(manifest.timing.cadence, Manual):
        return
    target = "a manual cadence, which never fires by itself"
    if manifest.depends_on is not None:
        target = "a dependent, which fires at its parent's success"
    stated = {
        "jitter": manifest.jitter_seconds,
        "misfire": manifest.misfire != Misfire(),
        "exclude": manifest.timing.exclusions,
    }
    for name in [name for name, value in stated.items() if value]:
        yield f"{name} has no effect on {target}: leave it out"


def problems_of_key(manifest: ManifestDefinition, *, input_is_sound: bool = True) -> list[str]:
    """Return the reason why the concurrency key of a manifest cannot be made from its input."""
    template = manifest.concurrency_key
    problems = _problems_of_template(template)
    # The input of a dormant manifest is not known yet.
    if template is None or problems or manifest.dormant or not input_is_sound:
        return problems
    names = {"manifest": manifest.external_id, "group": manifest.group, "job": manifest.job}
    return problem_raised(keys.render_key, template, input=manifest.input, **names)


def _problems_of_template(template: object) -> list[str]:
    if template is None:
        return []
    if not isinstance(template, str):
        return [f"concurrency_key={template!r} is not text such as 'customer:{{input.id}}'"]
    return problem_raised(keys.check_template, template)


def problems_of_input(manifest: ManifestDefinition, job: JobDefinition | None) -> list[str]:
    """Return the problems of an input; the scheduler checks inputs of jobs that it has stored."""
    trouble = None if job is None else job.problem_of_input(manifest.input)
    try:
        encoded = msgspec.json.encode(manifest.input)
        survives = trouble or msgspec.json.decode(encoded) == manifest.input
    except (TypeError, ValueError, RecursionError) as error:
        return [f"its input does not fit job {manifest.job!r}: {error}"]
    if trouble:
        return [f"its input does not fit job {manifest.job!r}: {trouble}"]
    if not survives:
        remedy = "NaN and infinity cannot be sent; write them as text"
        return [f"its input changes when it is encoded as JSON: {remedy}"]
    if len(encoded) > INPUT_LIMIT:
        remedy = "store it elsewhere and send a reference"
        return [f"its input is larger than {INPUT_LIMIT} bytes: {remedy}"]
    return []


def problems_of_ids(drafts: Iterable[Draft]) -> Iterator[str]:
    """Yield ids that are not unique."""
    # The check of names reports ids that are not text.
    named = [draft for draft in drafts if isinstance(draft.external_id, str)]
    by_id = sorted(named, key=lambda draft: draft.external_id)
    for external_id, found in groupby(by_id, key=lambda draft: draft.external_id):
        same = list(found)
        if len(same) > 1:
            yield _not_unique(external_id, same)


def _not_unique(external_id: str, same: list[Draft]) -> str:
    first, second = same[0], same[1]
    if first.decorated and second.decorated and first.job == second.job:
        name = external_id.removeprefix(f"{first.job}-")
        return (
            f"job {first.job!r} has {len(same)} cadences called {name!r}, and each needs a "
            "manifest of its own: give all but one a name=, such as name='evening', or remove them"
        )
    return (
        f"{second.where}two manifests have the id {external_id!r}: give one of them another id, "
        "or a name= to its cadence"
    )


def problems_of_parents(drafts: list[Draft], *, any_parent: bool = False) -> list[str]:
    """Return dependents whose parent is not declared, unless any may be, and cycles."""
    named = [draft for draft in drafts if isinstance(draft.external_id, str)]
    known = {draft.external_id for draft in named}
    problems = [
        f"{draft.called} depends on {draft.depends_on!r}, which this app does not declare: "
        "declare it, or name another parent"
        for draft in drafts
        if draft.depends_on is not None
        and not (isinstance(draft.depends_on, str) and (any_parent or draft.depends_on in known))
    ]
    parents = {
        draft.external_id: draft.depends_on
        for draft in named
        if draft.depends_on and isinstance(draft.depends_on, str)
    }
    return problems + [
        f"manifests form a dependency cycle: {' → '.join(reversed(cycle))}: "
        "give one of them another parent"
        for cycle in find_cycles(parents)
    ]


def problems_of_group(where: str, group: GroupDefinition) -> list[str]:
    """Return the problems of a group's settings."""
    problems = problem_raised(check_name, "group", group.name)
    called = f"group {group.name!r}"
    problems += [f"{called}: {misfit}" for misfit in misfits_of(group, {"name"})]
    return [f"{where}{problem}" for problem in problems]


def conflicts_of(where: str, known: GroupDefinition, stated: GroupDefinition) -> Iterator[str]:
    """Yield settings of a group that are declared twice with different values."""
    for setting in ("max_active", "priority", "enabled", "rate"):
        before, now = getattr(known, setting), getattr(stated, setting)
        if None not in (before, now) and before != now:
            twice = f"sets {setting} twice, to {before} and to {now}: set it once"
            yield f"{where}group {stated.name!r} {twice}"


def problems_of_job(job: JobDefinition) -> list[str]:
    """Return the problems of a job's settings and of its concurrency key."""
    problems = [str(misfit) for misfit in misfits_of(job, {"name", "concurrency_key"})]
    return problems + _problems_of_template(job.terms.concurrency_key)


def problems_of_job_names(job: DeclaredJob) -> list[str]:
    """Return the problems of the names of a job and of its group."""
    problems = problem_raised(check_name, "job", job.name)
    if job.group != job.name:
        problems += problem_raised(check_name, "group", job.group)
    return problems


def misfits_of(definition: Struct, checked: AbstractSet[str] = frozenset()) -> list[Misfit]:
    """Return the fields that a round trip through JSON would change, except `checked` ones."""
    encoded, decoded = b"", None
    with suppress(TypeError, ValueError, RecursionError):
        encoded = msgspec.json.encode(definition)
        decoded = msgspec.json.decode(encoded, type=type(definition))
    found = [] if decoded == definition else find_misfits(definition, type(definition))
    if holds_nul(encoded):
        found = [*found, Misfit(("it",), "holds a NUL character, which cannot be stored")]
    named = [_with_option_names(misfit) for misfit in found]
    return [misfit for misfit in named if misfit.path[0] not in checked]


def _with_option_names(misfit: Misfit) -> Misfit:
    """Replace field names such as `terms.timeout_seconds` by the option, `timeout`."""
    path = misfit.path[1:] if misfit.path[0] == "terms" else misfit.path
    return Misfit(tuple(step.removesuffix("_seconds") for step in path), misfit.problem)
