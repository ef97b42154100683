"""What can be wrong with declarations, each problem in one line that names its remedy."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from itertools import groupby
from typing import Any

import msgspec
from headway_contract.fitting import Misfit, fit, problem_of
from headway_contract.limits import INPUT_LIMIT
from headway_contract.names import InvalidName, check_manifest_id, check_name
from headway_decisions.capacity import keys
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.declaring.lineage import find_cycles
from headway_decisions.timing import timing as timings
from headway_decisions.timing.cadence import Manual
from headway_decisions.timing.timing import Timing
from msgspec import Struct, structs

from headway.define.declarations import OF_FIRE_TIMES, Draft
from headway.define.definitions import GroupDefinition, JobDefinition, ManifestDefinition
from headway.define.jobs import DeclaredJob, holds_nul

_LOST_IN_JSON = (
    "does not come back from JSON as it went in: NaN and infinity cannot be sent, "
    "write them as text"
)

_TOLD_ELSEWHERE = frozenset(
    {"external_id", "group", "job", "concurrency_key", "depends_on", "batch"}
)


class TimingChecks:
    """Checks timings, equal ones only once: a batch has thousands of them."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[str]] = {}

    def problems_of(self, timing: Timing, *, unreadable: bool = False) -> list[str]:
        """Everything that is wrong with a timing.

        One that could be read only in part was complained of: then nothing is said that may
        follow from what is missing.
        """
        if unreadable:
            return timings.problems_of_parts(timing)
        try:
            encoded = msgspec.json.encode(timing)
        except (TypeError, ValueError, RecursionError) as error:
            return timings.problems_of_parts(timing) or [str(error)]
        if encoded not in self._known:
            self._known[encoded] = timings.problems(timing)
        return self._known[encoded]


def problems_of_manifest(
    draft: Draft,
    manifest: ManifestDefinition,
    job: DeclaredJob,
    *,
    timing_is_sound: bool,
    inherited: Iterable[str] = (),
) -> list[str]:
    """What is wrong with a manifest besides its timing.

    `inherited` was told of its job or of its app, and is not told again unless the manifest
    states the same.
    """
    problems = [f"{draft.where}{one}" for one in _problems_of_names(draft, manifest)]
    of_input = _problems_of_input(manifest, job)
    told = _TOLD_ELSEWHERE | ({"input"} if of_input else set())
    wrong = [*of_input, *_without_meaning(draft)]
    found = [
        *(
            ("concurrency_key", one)
            for one in problems_of_key(manifest, input_is_sound=not of_input)
        ),
        *(
            (one.path[0], str(one))
            for one in misfits_of(manifest, told | (set() if timing_is_sound else {"timing"}))
        ),
    ]
    wrong += [one for name, one in found if one not in inherited or name in draft.terms]
    return problems + [f"{draft.called}: {one}" for one in wrong]


def _problems_of_names(draft: Draft, manifest: ManifestDefinition) -> Iterator[str]:
    """Names that may not be; what only follows from a job's or a batch's was told there."""
    derived = [manifest.job] if draft.decorated else [draft.batch] if draft.batch else []
    if all(_is_name(name) for name in derived):
        yield from _problem_of_name(check_manifest_id, manifest.external_id)
    stated = draft.terms.get("group")
    if stated is not None and not (stated == draft.batch and not _is_name(draft.batch)):
        yield from _problem_of_name(check_name, "group", manifest.group)


def _problem_of_name(check: Callable[..., str], *given: object) -> list[str]:
    try:
        check(*given)
    except InvalidName as error:
        return [str(error)]
    return []


def _is_name(given: object) -> bool:
    return not _problem_of_name(check_name, "", given)


def _without_meaning(draft: Draft) -> Iterator[str]:
    """Terms of fire times, stated for what has none."""
    if draft.depends_on is not None:
        if draft.where:
            return  # the file was told so already
        whose = "a dependent, which fires at its parent's success"
    elif draft.when is not None and isinstance(draft.when.cadence, Manual):
        whose = "a manual cadence, which never fires by itself"
    else:
        return
    for name in OF_FIRE_TIMES:
        stated: Any = draft.terms.get(name)
        if stated is not None and stated != []:
            yield f"{name} has no meaning for {whose}: leave it out"


def problems_of_key(manifest: ManifestDefinition, *, input_is_sound: bool = True) -> Iterator[str]:
    """Why the concurrency key of a manifest cannot be made of its input."""
    problem = _problem_of_key(
        manifest.concurrency_key,
        given=manifest.input,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
        must_fit=input_is_sound and not manifest.dormant,
    )
    if problem is not None:
        yield problem


def _problems_of_input(manifest: ManifestDefinition, job: DeclaredJob) -> list[str]:
    trouble = job.problem_of_input(manifest.input)
    try:
        encoded = msgspec.json.encode(manifest.input)
        survives = trouble or msgspec.json.decode(encoded) == manifest.input
    except (TypeError, ValueError, RecursionError) as error:
        return [f"its input does not fit job {job.name!r}: {error}"]
    if trouble:
        return [f"its input does not fit job {job.name!r}: {trouble}"]
    if not survives:
        return [f"its input {_LOST_IN_JSON}"]
    if len(encoded) > INPUT_LIMIT:
        return [f"its input is larger than {INPUT_LIMIT} bytes: send where it is found"]
    return []


def problems_of_ids(drafts: Iterable[Draft]) -> Iterator[str]:
    """Ids that are not unique."""
    # What is no text was complained of.
    named = [draft for draft in drafts if isinstance(draft.external_id, str)]
    by_id = sorted(named, key=lambda draft: draft.external_id)
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


def problems_of_parents(drafts: list[Draft], *, any_parent: bool = False) -> list[str]:
    """Dependents whose parent is not declared (or may be any), or that wait for themselves."""
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
        f"manifests wait for each other: {' → '.join(reversed(cycle))}: "
        "hang one of them on another parent"
        for cycle in find_cycles(parents)
    ]


def problems_of_group(where: str, group: GroupDefinition) -> list[str]:
    """What is wrong with the settings of a group."""
    problems = _problem_of_name(check_name, "group", group.name)
    called = f"group {group.name!r}"
    problems += [f"{called}: {one}" for one in misfits_of(group, {"name"})]
    return [f"{where}{one}" for one in problems]


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
    return [f"{called}: {one}" for one in lines_about_job(job)]


def lines_about_job(job: JobDefinition) -> list[str]:
    """The same, without saying which job it is."""
    problems = [str(one) for one in misfits_of(job, {"name", "concurrency_key"})]
    of_key = _problem_of_key(
        job.terms.concurrency_key, given=None, manifest="", group="", job=job.name, must_fit=False
    )
    return problems if of_key is None else [*problems, of_key]


def names_of_job(job: DeclaredJob) -> list[str]:
    """What is wrong with the names of a job and of its group, which is called like it."""
    problems = _problem_of_name(check_name, "job", job.name)
    if job.group != job.name:
        problems += _problem_of_name(check_name, "group", job.group)
    return problems


def lines_about_terms(terms: Mapping[str, Any]) -> list[str]:
    """What is wrong with terms of manifests that are stated for many of them at once."""
    types = {field.name: field.type for field in structs.fields(ManifestDefinition)}
    found = []
    for name, given in terms.items():
        if isinstance(given, Struct):
            found += fit(given, type(given), (name,)).misfits
        elif (problem := problem_of(given, types[name], of=name)) is not None:
            found.append(Misfit((name,), problem))
    return [str(_in_the_words_of_users(one)) for one in found]


def misfits_of(definition: Struct, told: AbstractSet[str] = frozenset()) -> list[Misfit]:
    """What keeps a definition from coming back from the database as it went in.

    Fields that were `told` of are passed over.
    """
    encoded, comes_back = _travelled(definition)
    found: list[Misfit] = []
    if not comes_back:
        found += fit(definition, type(definition)).misfits
    if encoded is not None and holds_nul(encoded):
        found.append(Misfit(("it",), "holds a NUL character, which cannot be stored"))
    worded = [_in_the_words_of_users(misfit) for misfit in found]
    return [misfit for misfit in worded if misfit.path[0] not in told]


def _travelled(definition: Struct) -> tuple[bytes | None, bool]:
    """What is stored of a definition, and whether it is the same when it is read."""
    try:
        encoded = msgspec.json.encode(definition)
    except (TypeError, ValueError, RecursionError):
        return None, False
    try:
        return encoded, msgspec.json.decode(encoded, type=type(definition)) == definition
    except msgspec.DecodeError:
        return encoded, False


def _in_the_words_of_users(misfit: Misfit) -> Misfit:
    """What is stored as `terms.timeout_seconds` is called `timeout` where it is stated."""
    path = misfit.path[1:] if misfit.path[0] == "terms" else misfit.path
    return Misfit(tuple(step.removesuffix("_seconds") for step in path), misfit.problem)


def _problem_of_key(
    template: object, *, given: Any, manifest: str, group: str, job: str, must_fit: bool
) -> str | None:
    """Why a template makes no concurrency key, or none.

    A manifest that gets its input only when it is woken is asked about it then.
    """
    if template is None:
        return None
    if not isinstance(template, str):
        return f"concurrency_key={template!r} is no text such as 'customer:{{input.id}}'"
    try:
        keys.check_template(template)
        if must_fit:
            keys.render_key(template, input=given, manifest=manifest, group=group, job=job)
    except InvalidKey as error:
        return str(error)
    return None
