"""Assemble declarations into definitions, and report all problems at once."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import msgspec
from headway_contract.fitting import problem_of
from headway_contract.work import terms_of
from headway_decisions.timing import timing as timings
from headway_decisions.timing.cadence import Manual
from headway_decisions.timing.timing import Timing

from headway.define import calendar, checks, definitions
from headway.define.chain import add_batch
from headway.define.declarations import BatchDraft, Declarations, Draft, name_of_function
from headway.define.defaults import BUILT_IN, Defaults, overlay
from headway.define.jobs import DeclaredJob
from headway.define.options import FIELDS, read_misfire, read_options, read_overlap, resolve_retry
from headway.define.when import When, read_when

# Stands for an undeclared job, so that the other problems of its manifests are found too.
_UNKNOWN_JOB = DeclaredJob(name="unknown", group="unknown")
_DEPENDENT = When(timing=Timing(cadence=Manual()), name="dependent")


def assemble(declared: Declarations, defaults: Defaults = BUILT_IN) -> definitions.Definitions:
    """Return all declarations as plain data, or raise with all problems at once."""
    assembly = _Assembly(declared, defaults)
    drafts = declared.all_drafts()
    jobs = [assembly.job(job) for job in declared.jobs.values()]
    manifests = [assembly.manifest(draft) for draft in drafts]
    assembly.check_unused_batches()
    groups = assembly.groups(manifests)
    problems = assembly.problems
    problems += checks.problems_of_ids(drafts)
    problems += checks.problems_of_parents(drafts, any_parent=declared.at_run_time)
    if problems:
        raise definitions.InvalidDefinitions(list(dict.fromkeys(problems)))
    return definitions.Definitions(
        owner=declared.owner,
        generation=declared.generation,
        groups=groups,
        jobs=tuple(jobs),
        manifests=tuple(manifests),
        batches=tuple(declared.batches.values()),
    )


def assemble_at_run_time(draft: Draft | BatchDraft) -> definitions.Definitions:
    """Return the definitions of a manifest or a batch that belongs to no application."""
    declared = Declarations(owner=definitions.API_OWNER)
    # Only the scheduler knows the terms of the job: it fills in the `inherited` fields.
    job: Any = draft.job
    declared.add_job(DeclaredJob(name=job, group=job))
    if draft.when is not None:
        when = read_when(draft.when, draft.called, declared.problems)
        draft = msgspec.structs.replace(draft, when=when)
    if isinstance(draft, BatchDraft):
        add_batch(declared, draft)
    else:
        declared.drafts.append(draft)
    return without_application(declared)


def without_application(
    declared: Declarations, defaults: Defaults = BUILT_IN
) -> definitions.Definitions:
    """Return definitions that belong to no application, or raise with all problems at once."""
    declared.owner, declared.at_run_time = definitions.API_OWNER, True
    # Jobs belong to the application that declared them; the scheduler resolves the groups.
    return msgspec.structs.replace(assemble(declared, defaults), jobs=(), groups=())


class _Assembly:
    """Assembles the parts of an app, and collects their problems."""

    def __init__(self, declared: Declarations, weaker: Defaults) -> None:
        self._declared = declared
        wrong: list[str] = []
        self._defaults = overlay(weaker, declared.defaults, wrong)
        wrong += [str(misfit) for misfit in checks.misfits_of(self._defaults)]
        # Manifests inherit problems of the app and of their job, and must not report them again.
        self._reported = defaultdict[str, frozenset[str]](lambda: frozenset(wrong))
        self.problems = [*declared.problems, *(f"defaults of the app: {each}" for each in wrong)]
        if (of_generation := problem_of(declared.generation, definitions.Generation)) is not None:
            self.problems.append(f"generation {of_generation}")

    def job(self, job: DeclaredJob) -> definitions.JobDefinition:
        """Return the definition of a job."""
        called = f"{job.where}job {job.name!r}"
        self.problems += [f"{job.where}{problem}" for problem in checks.problems_of_job_names(job)]
        schema = None
        try:
            schema = job.schema()
        except (TypeError, ValueError) as error:
            self.problems.append(f"{called}: its input type has no JSON Schema: {error}")
        definition = job.definition(self._defaults, schema)
        wrong = checks.problems_of_job(definition)
        of_app = self._reported[job.name]
        self.problems += [f"{called}: {problem}" for problem in wrong if problem not in of_app]
        self._reported[job.name] = of_app.union(wrong)
        return definition

    def manifest(self, draft: Draft) -> definitions.ManifestDefinition:
        """Return the definition of a manifest."""
        job = self._find(draft) or _UNKNOWN_JOB
        wrong: list[str] = []
        at_run_time = self._declared.at_run_time
        manifest = _manifest(draft, job, self._defaults, wrong, at_run_time=at_run_time)
        wrong += _problems_of_timing(manifest.timing, draft.when)
        self.problems += [f"{draft.called}: {problem}" for problem in wrong]
        inherited = self._reported[job.name]
        self.problems += checks.problems_of_manifest(
            draft, manifest, job, timing_is_sound=not wrong, inherited=inherited
        )
        return manifest

    def check_unused_batches(self) -> None:
        """Check the job and the cadence of batches whose items do not use them."""
        for batch in self._declared.unused:
            self._find(batch)
            if batch.when is not None:
                of_timing = _problems_of_timing(batch.when.timing, batch.when)
                found = (*batch.when.problems, *of_timing)
                self.problems += [f"{batch.called}: {problem}" for problem in found]

    def _find(self, draft: Draft | BatchDraft) -> DeclaredJob | None:
        """Return the job of a manifest or a batch, by its name or its function."""
        target, found = draft.job, self._declared.find_job(draft.job)
        # The reader of a file has reported a missing key `job`.
        if found is None and (target is not None or not draft.where):
            python = "put @app.job(...) over its function, or name another job"
            remedy = "declare it under jobs" if draft.where else python
            hint = calendar.did_you_mean(target, self._declared.jobs)
            name = name_of_function(target)
            problem = f"names the job {name!r}, which is not declared: {remedy}{hint}"
            self.problems.append(f"{draft.called} {problem}")
        return found

    def groups(
        self, manifests: list[definitions.ManifestDefinition]
    ) -> tuple[definitions.GroupDefinition, ...]:
        """Merge the declarations of each group, and add groups that manifests only name."""
        groups: dict[str, definitions.GroupDefinition] = {}
        for where, stated in self._declared.groups:
            self.problems += checks.problems_of_group(where, stated)
            known = groups.get(stated.name, definitions.GroupDefinition(name=stated.name))
            self.problems += checks.conflicts_of(where, known, stated)
            settings = msgspec.structs.asdict(stated)
            own = {name: value for name, value in settings.items() if value is not None}
            groups[stated.name] = msgspec.structs.replace(known, **own)
        for manifest in manifests:
            if isinstance(manifest.group, str):  # any other type is a problem of its manifest
                groups.setdefault(manifest.group, definitions.GroupDefinition(name=manifest.group))
        return tuple(groups.values())


def _problems_of_timing(stated: Timing, when: When | None) -> list[str]:
    """Return the problems of a timing; parts that could not be read are reported already."""
    unreadable = when is not None and when.unreadable
    return timings.problems_of_parts(stated) if unreadable else timings.problems(stated)


def _manifest(
    draft: Draft, job: DeclaredJob, defaults: Defaults, wrong: list[str], *, at_run_time: bool
) -> definitions.ManifestDefinition:
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
    # A policy given by name has the threshold of the defaults.
    misfire = _first(terms.get("misfire"), when.misfire, usual.misfire)
    threshold = defaults.misfire.threshold_seconds
    return definitions.ManifestDefinition(
        **{**terms_of(job.resolve_terms(defaults)), **stated},
        external_id=draft.external_id,
        job=job.name,
        group=_first(terms.get("group"), job.group),
        timing=timing,
        input=_as_json(draft.input),
        misfire=read_misfire(misfire, wrong, threshold=threshold) or defaults.misfire,
        overlap=_first(read_overlap(terms.get("overlap"), wrong), when.overlap, defaults.overlap),
        jitter_seconds=_first(terms.get("jitter"), when.jitter, usual.jitter_seconds),
        enabled=_first(terms.get("enabled"), when.enabled, True),  # noqa: FBT003
        depends_on=draft.depends_on,
        dormant=draft.dormant,
        batch=draft.batch,
        labels=_labels(job.labels, terms.get("labels"), wrong),
        inherited=_inherited(draft) if at_run_time else (),
    )


def _inherited(draft: Draft) -> tuple[definitions.Inheritable, ...]:
    """List the fields that a manifest inherits from its job; labels are merged."""
    stated = {FIELDS.get(name, name) for name, value in draft.terms.items() if value is not None}
    return tuple(
        field for field in definitions.INHERITABLE if field == "labels" or field not in stated
    )


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
