"""Assemble declarations into definitions, and report all problems at once."""

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

# Stands for an undeclared job, so that the other problems of its manifests are found too.
_UNKNOWN_JOB = RemoteJob(name="unknown", group="unknown")
_DEPENDENT = When(timing=Timing(cadence=Manual()), name="dependent")


def assemble(declared: Declarations, defaults: Defaults = BUILT_IN) -> Definitions:
    """Return all declarations as plain data, or raise with all problems at once.

    `defaults` apply where neither a definition nor the app sets a value.
    """
    problems = list(declared.problems)
    defaults, shared = _defaults(declared, defaults)
    problems += [f"defaults of the app: {problem}" for problem in shared]
    problems += checks.problems_of_generation(declared.generation)
    drafts = [*_decorated(declared), *declared.drafts]
    reported = ReportedProblems(shared)
    jobs = _jobs(declared, defaults, reported, problems)
    manifests = _manifests(declared, drafts, defaults, reported, problems)
    problems += _problems_of_unused(declared)
    groups = _groups(declared, manifests, problems)
    problems += checks.problems_of_ids(drafts)
    problems += checks.problems_of_parents(drafts, any_parent=declared.at_run_time)
    if declared.at_run_time:
        pairs = zip(manifests, drafts, strict=True)
        manifests = [
            msgspec.structs.replace(manifest, inherited=_inherited(draft))
            for manifest, draft in pairs
        ]
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
    """Make a manifest for each cadence that decorates a job; its id contains the cadence."""
    return [
        Draft(external_id=f"{job.name}-{when.name}", job=job.name, when=when, decorated=True)
        for job in declared.jobs.values()
        for when in job.cadences()
    ]


def _defaults(declared: Declarations, weaker: Defaults) -> tuple[Defaults, list[str]]:
    """Return the defaults of an app, and the problems of those that it sets itself."""
    wrong: list[str] = []
    defaults = overlay(weaker, declared.defaults, wrong)
    stated = msgspec.structs.asdict(defaults).items()
    own = {
        name: value for name, value in stated if name != "tz" and value is not getattr(weaker, name)
    }
    return defaults, wrong + checks.problems_of_terms(own)


class ReportedProblems:
    """Problems of apps and jobs, which their manifests inherit and must not report again."""

    def __init__(self, of_app: list[str]) -> None:
        self._of_app = frozenset(of_app)
        self._of_jobs: dict[str, frozenset[str]] = {}

    def add_job(self, job: str, wrong: list[str]) -> list[str]:
        """Remember the problems of a job, and return those that the app does not have."""
        self._of_jobs[job] = frozenset(wrong) | self._of_app
        return [problem for problem in wrong if problem not in self._of_app]

    def inherited_from(self, job: str) -> frozenset[str]:
        """Return the problems that manifests inherit from a job and its app."""
        return self._of_jobs.get(job, self._of_app)


def _jobs(
    declared: Declarations, defaults: Defaults, reported: ReportedProblems, problems: list[str]
) -> tuple[JobDefinition, ...]:
    definitions = []
    for job in declared.jobs.values():
        called = f"{job.where}job {job.name!r}"
        problems += [f"{job.where}{problem}" for problem in checks.problems_of_job_names(job)]
        try:
            schema = job.input_schema()
        except (TypeError, ValueError) as error:
            problems.append(f"{called}: its input type has no JSON Schema: {error}")
            schema = None
        definition = job.definition(defaults, schema)
        wrong = checks.problems_of_job(definition)
        problems += [f"{called}: {problem}" for problem in reported.add_job(job.name, wrong)]
        definitions.append(definition)
    return tuple(definitions)


def _manifests(
    declared: Declarations,
    drafts: list[Draft],
    defaults: Defaults,
    reported: ReportedProblems,
    problems: list[str],
) -> list[ManifestDefinition]:
    timings = checks.TimingChecks()
    manifests = []
    for draft in drafts:
        job = None if draft.job is None else _find(declared, draft.job)
        if job is None:
            # The reader of a file has reported a missing key `job`.
            if draft.job is not None or not draft.where:
                problems.append(_undeclared(draft))
            job = _UNKNOWN_JOB
        wrong: list[str] = []
        manifest = _manifest(draft, job, defaults, wrong)
        unreadable = draft.when is not None and draft.when.unreadable
        of_timing = timings.problems_of(manifest.timing, unreadable=unreadable)
        problems += [f"{draft.called}: {problem}" for problem in wrong + of_timing]
        problems += checks.problems_of_manifest(
            draft,
            manifest,
            job,
            timing_is_sound=not (wrong or of_timing),
            inherited=reported.inherited_from(job.name),
        )
        manifests.append(manifest)
    return manifests


def _problems_of_unused(declared: Declarations) -> list[str]:
    """Check the job and the cadence of batches whose items do not use them."""
    problems = []
    timings = checks.TimingChecks()
    for draft in declared.unused:
        if draft.job is not None and _find(declared, draft.job) is None:
            problems.append(_undeclared(draft))
        if draft.when is not None:
            of_timing = timings.problems_of(draft.when.timing, unreadable=draft.when.unreadable)
            found = (*draft.when.problems, *of_timing)
            problems += [f"{draft.called}: {problem}" for problem in found]
    return problems


def _find(declared: Declarations, target: JobGiven) -> DeclaredJob | None:
    if isinstance(target, str):
        return declared.jobs.get(target)
    jobs = declared.jobs.values()
    return next((job for job in jobs if isinstance(job, Job) and job.function is target), None)


def _undeclared(draft: Draft) -> str:
    target = draft.job
    called = target if isinstance(target, str) else getattr(target, "__qualname__", repr(target))
    remedy = "declare it under jobs" if draft.where else "put @app.job(...) over its function"
    return f"{draft.called} names the job {called!r}, which is not declared: {remedy}"


def _manifest(
    draft: Draft, job: DeclaredJob, defaults: Defaults, wrong: list[str]
) -> ManifestDefinition:
    """Make a manifest from its draft, its cadence, its job and its app; the first value wins."""
    terms = draft.terms
    stated = resolve_retry(read_options(terms, wrong), defaults.retry)
    when = draft.when if draft.when is not None else _DEPENDENT
    wrong += when.problems
    excluded = calendar.read_exclusions(terms.get("exclude"), wrong)
    timing = when.timing
    # A manual cadence has no fire times, so defaults of fire times do not apply.
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


def _inherited(draft: Draft) -> tuple[Inheritable, ...]:
    """List the fields that a manifest inherits from its job; labels are merged."""
    stated = {FIELDS.get(name, name) for name, value in draft.terms.items() if value is not None}
    return tuple(field for field in INHERITABLE if field == "labels" or field not in stated)


def _misfire(given: object, defaults: Defaults, wrong: list[str]) -> Misfire:
    """Read a misfire policy; a policy given by name has the threshold of the defaults."""
    threshold = defaults.misfire.threshold_seconds
    return read_misfire(given, wrong, threshold=threshold) or defaults.misfire


def _labels(of_job: object, own: object, wrong: list[str]) -> dict[str, str]:
    """Merge the labels of a job and of its manifest; the manifest's win."""
    if own is not None and not isinstance(own, Mapping):
        wrong.append(f"labels={own!r} is not a mapping: write {{'team': 'data'}}")
    # The job reports invalid labels of its own.
    given = [labels for labels in (of_job, own) if isinstance(labels, Mapping)]
    return {name: value for labels in given for name, value in labels.items()}


def _first(*values: Any) -> Any:
    """Return the first value that is not `None`, if there is one."""
    return next((value for value in values if value is not None), None)


def _as_json(given: Any) -> Any:
    """Convert an input to JSON types; return it unchanged if that is not possible."""
    try:
        return msgspec.to_builtins(given, str_keys=True)
    except TypeError:
        return given


def _groups(
    declared: Declarations, manifests: list[ManifestDefinition], problems: list[str]
) -> tuple[GroupDefinition, ...]:
    """Merge the declarations of each group, and add groups that manifests only name."""
    groups: dict[str, GroupDefinition] = {}
    for where, stated in declared.groups:
        problems += checks.problems_of_group(where, stated)
        known = groups.get(stated.name, GroupDefinition(name=stated.name))
        problems += checks.problems_of_two_statements(where, known, stated)
        settings = msgspec.structs.asdict(stated)
        own = {name: value for name, value in settings.items() if value is not None}
        groups[stated.name] = msgspec.structs.replace(known, **own)
    for manifest in manifests:
        if isinstance(manifest.group, str):  # any other type is a problem of its manifest
            groups.setdefault(manifest.group, GroupDefinition(name=manifest.group))
    return tuple(groups.values())
