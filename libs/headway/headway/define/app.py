"""An application: its jobs, its groups and its schedules."""

from collections.abc import Callable, Mapping
from typing import Any, Unpack

from headway.define import declarations
from headway.define.assembly import assemble
from headway.define.chain import Chain, add_batch
from headway.define.defaults import BUILT_IN, Defaults, DefaultTerms
from headway.define.definitions import Definitions, GroupDefinition
from headway.define.jobs import Job, input_of_body, problems_of_running
from headway.define.keywords import check_keywords, refuse_unknown
from headway.define.options import FIELDS, Function, RateGiven, WorkOptions, read_options, read_rate
from headway.define.when import When, read_when


class App:
    """Collects the declarations of an application; `definitions` checks all of them at once.

    A process with an older `generation` than the one stored changes nothing. The `version` of the
    code is shown with its workers and their failures. `defaults` apply to all jobs and manifests
    that set nothing else: `App("a", defaults={"timeout": 60})`. `tz` is the zone of all cadences
    without one, the same as `defaults={"tz": ...}`.
    """

    @check_keywords
    def __init__(
        self,
        name: str,
        *,
        generation: int = 0,
        version: str = "",
        defaults: DefaultTerms | None = None,
        tz: str | None = None,
    ) -> None:
        self.name = declarations.check_app_name(name)
        self.version = version
        refuse_unknown("App(defaults=...)", defaults or (), DefaultTerms.__optional_keys__)
        terms: DefaultTerms = {**defaults} if defaults else {}
        if tz is not None and terms.setdefault("tz", tz) != tz:
            other = terms["tz"]
            raise TypeError(f"App() takes tz={tz!r} and defaults={{'tz': {other!r}}}: set one zone")
        self._declared = declarations.Declarations(
            owner=self.name, generation=generation, defaults=terms
        )

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs whose bodies are in this program."""
        found = self._declared.jobs.items()
        return {name: job for name, job in found if isinstance(job, Job) and not job.elsewhere}

    @check_keywords
    def job(
        self,
        name: str,
        *,
        title: str = "",
        category: str = "",
        description: str = "",
        group: str | None = None,
        max_active: int | None = None,
        rate: RateGiven = None,
        counts_globally: bool = True,
        batch: int | None = None,
        process: bool = False,
        worker_concurrency: int | None = None,
        capture_logging: bool = False,
        elsewhere: bool = False,
        labels: Mapping[str, str] | None = None,
        **options: Unpack[WorkOptions],
    ) -> Callable[[Function], Function]:
        """Declare a function as a job. It takes a context and optionally one typed input.

        `max_active` and `rate` limit the job over all its manifests. Without `counts_globally` it
        ignores the global limit. Work with an equal `concurrency_key` runs one after the other.
        Short runs share a lease, up to `batch` of them if it is given. Work that has not started
        within `start_within` seconds expires.

        With `process` each run has its own process, for CPU-bound work. A worker runs at most
        `worker_concurrency` runs of the job at once. With `capture_logging` the output of Python's
        logging is stored with the run. `labels` are added to those of its manifests.

        With `elsewhere` the body is in another program, in any language: the function only declares
        the input type, and workers of this app do not run the job.
        """
        if callable(name):
            raise TypeError("@app.job takes the name of the job: write @app.job('name')")

        def declare(function: Function) -> Function:
            wrong: list[str] = []
            body_input: dict[str, Any] = {"input_type": Any}
            try:
                body_input = input_of_body(function)
            except (TypeError, NameError, ValueError) as error:
                wrong.append(str(error))
            stated = read_options(options, wrong)
            # `None` means the app's default; an option without one must not be `None`.
            stated |= {
                FIELDS[name]: None
                for name, value in options.items()
                if value is None and name not in DefaultTerms.__optional_keys__
            }
            job = Job(
                name=name,
                title=title,
                category=category,
                description=description or (function.__doc__ or "").strip(),
                function=function,
                group=name if group is None else group,
                stated=stated,
                **body_input,
                max_active=max_active,
                rate=read_rate(rate, wrong),
                counts_globally=counts_globally,
                batch=batch,
                process=process,
                worker_concurrency=worker_concurrency,
                capture_logging=capture_logging,
                elsewhere=elsewhere,
                labels=labels or {},
            )
            self._declared.problems += [f"job {name!r}: {problem}" for problem in wrong]
            self._declared.problems += problems_of_running(job)
            self._declared.add_job(job)
            job.marks().is_job = True
            return function

        return declare

    @check_keywords
    def group(
        self,
        name: str,
        *,
        max_active: int | None = None,
        priority: int | None = None,
        enabled: bool | None = None,
        rate: RateGiven = None,
    ) -> None:
        """Set limits of a group and its priority from 0 to 31; operators decide the others."""
        wrong: list[str] = []
        limit = read_rate(rate, wrong)
        group = GroupDefinition(
            name=name, max_active=max_active, priority=priority, enabled=enabled, rate=limit
        )
        self._declared.problems += [f"group {name!r}: {problem}" for problem in wrong]
        self._declared.groups.append(("", group))

    @check_keywords
    def schedule(
        self,
        external_id: str,
        *,
        job: declarations.JobGiven,
        when: When,
        input: Any = None,  # noqa: A002
        **terms: Unpack[declarations.Terms],
    ) -> Chain:
        """Schedule a declared job as a manifest with an id and an input."""
        cadence = read_when(when, f"manifest {external_id!r}", self._declared.problems)
        self._declared.drafts.append(declarations.Draft(external_id, job, cadence, input, terms))
        return self.manifest(external_id)

    @check_keywords
    def schedule_many(
        self,
        name: str,
        *,
        job: declarations.JobGiven,
        items: declarations.Items,
        when: When,
        key: Callable[[Any], str | int] | None = None,
        prune: bool = True,
        configure: declarations.Configure | None = None,
        **terms: Unpack[declarations.Terms],
    ) -> Chain:
        """Schedule a job once for each item, as manifests `name-<id>` in a group of that name.

        Items are a mapping from id to input, `(id, input)` pairs, `Item`s, or anything with a
        `key` function that returns the id. With `prune`, manifests of removed items are deleted.
        """
        cadence = read_when(when, f"batch {name!r}", self._declared.problems)
        batch = declarations.BatchDraft(
            name=name, job=job, items=items, when=cadence, key=key, prune=prune,
            configure=configure, terms=terms,
        )  # fmt: skip
        add_batch(self._declared, batch)
        return Chain(self._declared, None, after=name)

    @check_keywords
    def manifest(self, manifest: declarations.JobGiven) -> Chain:
        """Return the chain of a manifest, to add dependents to it.

        The manifest is an id, or a decorated function whose job has one manifest.
        """
        return Chain(self._declared, self._declared.manifest_of(manifest))

    def definitions(self, defaults: Defaults = BUILT_IN) -> Definitions:
        """Return all declarations as plain data, or raise with all problems at once."""
        return assemble(self._declared, defaults)
