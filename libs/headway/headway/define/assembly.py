"""From declarations to definitions: find, put together, check, and tell all problems at once."""

from collections.abc import Mapping
from typing import Any

import msgspec
from headway_contract.work import terms_of
from headway_decisions.firing.manifest_state import Misfire
from headway_decisions.timing.cadence import Manual
from headway_decisions.timing.timing import Timing

from headway.define import calendar, checks
from headway.define.declarations import Declarations, Draft, JobGiven
from headway.define.defaults import BUILT_IN, Defaults, overlay
from headway.define.definitions import (
    INHERITABLE,
    Definitions,
    GroupDefinition,
    Inheritable,
    InvalidDefinitions,
    JobDefinition,
    ManifestDefinition,
)
from headway.define.jobs import DeclaredJob, Job, RemoteJob
from headway.define.options import FIELDS, read_misfire, read_options, read_overlap, resolve_retry
from headway.define.when import When

# Stands for a job that nobody declared, so that all else about its manifests can be told.
_UNKNOWN_JOB = RemoteJob(name="unknown", group="unknown")
_DEPENDENT = When(timing=Timing(cadence=Manual()), name="dependent")


def assemble(declared: Declarations, defaults: Defaults = BUILT_IN) -> Definitions:
    """Everything declared, as plain data; raises with all problems at once.

    `defaults` hold where neither a definition nor the app states otherwise.
    """
    problems = list(declared.problems)
    defaults, shared = _defaults(declared, defaults)
    problems += [f"defaults of the app: {one}" for one in shared]
    problems += checks.problems_of_generation(declared.generation)
    drafts = [*_decorated(declared), *declared.drafts]
    told = Told(shared)
    jobs = _jobs(declared, defaults, told, problems)
    manifests = _manifests(declared, drafts, defaults, told, problems)
    problems += _problems_of_unused(declared)
    groups = _groups(declared, manifests, problems)
    problems += checks.problems_of_ids(drafts)
    problems += checks.problems_of_parents(drafts, any_parent=declared.at_run_time)
    if declared.at_run_time:
        pairs = zip(manifests, drafts, strict=True)
        manifests = [msgspec.structs.replace(one, inherited=_left(draft)) for one, draft in pairs]
    if problems:
        raise InvalidDefinitions(list(dict.fromkeys(problems)))
    return Definitions(
        owner=declared.owner,
        generation=declared.generation,
        groups=groups,
        jobs=jobs,
        manifests=tuple(manifests),
        batches=tuple(declared.batches.values()),
    )


def _decorated(declared: Declarations) -> list[Draft]:
    """A manifest for each cadence over a job; its id always carries the cadence."""
    return [
        Draft(external_id=f"{job.name}-{when.name}", job=job.name, when=when, decorated=True)
        for job in declared.jobs.values()
        for when in job.cadences()
    ]


def _defaults(declared: Declarations, weaker: Defaults) -> tuple[Defaults, list[str]]:
    """The defaults of an app, and what is wrong with those that it states."""
    wrong: list[str] = []
    defaults = overlay(weaker, declared.defaults, wrong)
    stated = msgspec.structs.asdict(defaults).items()
    own = {
        name: value for name, value in stated if name != "tz" and value is not getattr(weaker, name)
    }
    return defaults, wrong + checks.lines_about_terms(own)


class Told:
    """What was said about terms where they were stated, so that no user of them repeats it."""

    def __init__(self, of_app: list[str]) -> None:
        self._of_app = frozenset(of_app)
        self._of_jobs: dict[str, frozenset[str]] = {}

    def news_of(self, job: str, wrong: list[str]) -> list[str]:
        """What is wrong with a job alone, to be remembered for its manifests."""
        self._of_jobs[job] = frozenset(wrong) | self._of_app
        return [one for one in wrong if one not in self._of_app]

    def of(self, job: str) -> frozenset[str]:
        """What a manifest of a job has from others."""
        return self._of_jobs.get(job, self._of_app)


def _jobs(
    declared: Declarations, defaults: Defaults, told: Told, problems: list[str]
) -> tuple[JobDefinition, ...]:
    definitions = []
    for job in declared.jobs.values():
        called = f"{job.where}job {job.name!r}"
        problems += [f"{job.where}{one}" for one in checks.names_of_job(job)]
        try:
            schema = job.input_schema()
        except (TypeError, ValueError) as error:
            problems.append(f"{called}: its input type has no JSON Schema: {error}")
            schema = None
        definition = job.definition(defaults, schema)
        wrong = checks.lines_about_job(definition)
        problems += [f"{called}: {one}" for one in told.news_of(job.name, wrong)]
        definitions.append(definition)
    return tuple(definitions)


def _manifests(
    declared: Declarations,
    drafts: list[Draft],
    defaults: Defaults,
    told: Told,
    problems: list[str],
) -> list[ManifestDefinition]:
    timings = checks.TimingChecks()
    manifests = []
    for draft in drafts:
        job = None if draft.job is None else _find(declared, draft.job)
        if job is None:
            problems += _problems_without_job(draft)
            job = _UNKNOWN_JOB
        wrong: list[str] = []
        manifest = _manifest(draft, job, defaults, wrong)
        unreadable = draft.when is not None and draft.when.unreadable
        of_timing = timings.problems_of(manifest.timing, unreadable=unreadable)
        problems += [f"{draft.called}: {one}" for one in wrong + of_timing]
        problems += checks.problems_of_manifest(
            draft,
            manifest,
            job,
            timing_is_sound=not (wrong or of_timing),
            inherited=told.of(job.name),
        )
        manifests.append(manifest)
    return manifests


def _problems_of_unused(declared: Declarations) -> list[str]:
    """What is wrong with the job and the cadence of batches that have no items for them."""
    problems = []
    timings = checks.TimingChecks()
    for draft in declared.unused:
        if draft.job is not None and _find(declared, draft.job) is None:
            problems.append(_nobody_declared(draft))
        if draft.when is not None:
            of_timing = timings.problems_of(draft.when.timing, unreadable=draft.when.unreadable)
            problems += [f"{draft.called}: {one}" for one in (*draft.when.problems, *of_timing)]
    return problems


def _find(declared: Declarations, target: JobGiven) -> DeclaredJob | None:
    if isinstance(target, str):
        return declared.jobs.get(target)
    jobs = declared.jobs.values()
    return next((job for job in jobs if isinstance(job, Job) and job.function is target), None)


def _problems_without_job(draft: Draft) -> list[str]:
    missing_in_file = draft.job is None and draft.where  # the file was told so already
    return [] if missing_in_file else [_nobody_declared(draft)]


def _nobody_declared(draft: Draft) -> str:
    target = draft.job
    called = target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))
    remedy = "declare it under jobs" if draft.where else "put @app.job(...) over its function"
    return f"{draft.called} names the job {called!r}, which nobody declared: {remedy}"


def _manifest(
    draft: Draft, job: DeclaredJob, defaults: Defaults, wrong: list[str]
) -> ManifestDefinition:
    """A manifest from what its draft, its cadence, its job and its app state, in that order."""
    terms = draft.terms
    stated = resolve_retry(read_options(terms, wrong), defaults.retry)
    when = draft.when if draft.when is not None else _DEPENDENT
    wrong += when.problems
    excluded = calendar.read_exclusions(terms.get("exclude"), wrong)
    timing = when.timing
    # What has no fire times of its own has no use for defaults about them.
    usual = BUILT_IN if isinstance(when.cadence, Manual) else defaults
    if when.tz is None:
        timing = msgspec.structs.replace(timing, zone=usual.tz)
    if excluded:
        timing = msgspec.structs.replace(timing, exclusions=(*timing.exclusions, *excluded))
    return ManifestDefinition(
        **{**terms_of(job.terms(defaults)), **stated},
        external_id=draft.external_id,
        job=job.name,
        group=_first(terms.get("group"), job.group),
        timing=timing,
        input=_as_json(draft.input),
        misfire=_misfire(
            _first(terms.get("misfire"), when.misfire, usual.misfire), defaults, wrong
        ),
        overlap=_first(read_overlap(terms.get("overlap"), wrong), when.overlap, defaults.overlap),
        jitter_seconds=_first(terms.get("jitter"), when.jitter, usual.jitter_seconds),
        enabled=_first(terms.get("enabled"), when.enabled, True),  # noqa: FBT003
        depends_on=draft.depends_on,
        dormant=draft.dormant,
        batch=draft.batch,
        labels=_labels(job.labels, terms.get("labels"), wrong),
    )


def _left(draft: Draft) -> tuple[Inheritable, ...]:
    """The fields that a manifest leaves to its job; labels are put together."""
    stated = {FIELDS.get(name, name) for name, value in draft.terms.items() if value is not None}
    return tuple(field for field in INHERITABLE if field == "labels" or field not in stated)


def _misfire(given: object, defaults: Defaults, wrong: list[str]) -> Misfire:
    """A policy that was given; one that was only named has the threshold of the defaults."""
    threshold = defaults.misfire.threshold_seconds
    return read_misfire(given, wrong, threshold=threshold) or defaults.misfire


def _labels(of_job: object, own: object, wrong: list[str]) -> dict[str, str]:
    """The labels of a job and of its manifest, which goes before it."""
    if own is not None and not isinstance(own, Mapping):
        wrong.append(f"labels={own!r} are no labels: write {{'team': 'data'}}")
    # Those of a job that are none are told with the job.
    given = [one for one in (of_job, own) if isinstance(one, Mapping)]
    return {name: value for one in given for name, value in one.items()}


def _first(*values: Any) -> Any:
    """The first value that was stated, or none: what may not be none is told of."""
    return next((value for value in values if value is not None), None)


def _as_json(given: Any) -> Any:
    """What the input will look like after its journey; unreadable things stay as they are."""
    try:
        return msgspec.to_builtins(given, str_keys=True)
    except TypeError:
        return given


def _groups(
    declared: Declarations, manifests: list[ManifestDefinition], problems: list[str]
) -> tuple[GroupDefinition, ...]:
    """Groups that are stated, put together, and groups that are only used."""
    groups: dict[str, GroupDefinition] = {}
    for where, stated in declared.groups:
        problems += checks.problems_of_group(where, stated)
        known = groups.get(stated.name, GroupDefinition(name=stated.name))
        problems += checks.problems_of_two_statements(where, known, stated)
        settings = msgspec.structs.asdict(stated)
        told = {name: value for name, value in settings.items() if value is not None}
        groups[stated.name] = msgspec.structs.replace(known, **told)
    for manifest in manifests:
        if isinstance(manifest.group, str):  # anything else was told as a problem of its manifest
            groups.setdefault(manifest.group, GroupDefinition(name=manifest.group))
    return tuple(groups.values())
