"""An application: its jobs, its groups and when they run."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from headway.define.assembly import assemble
from headway.define.chain import BatchDraft, Chain, Configure, Items, add_batch
from headway.define.declarations import Declarations, Draft, JobGiven, Terms, check_app_name
from headway.define.defaults import BUILT_IN, Defaults, DefaultTerms
from headway.define.definitions import Definitions, GroupDefinition
from headway.define.jobs import BodyInput, Job, input_of_body, problems_of_running
from headway.define.options import FIELDS, RateGiven, WorkOptions, read_options, read_rate
from headway.define.when import When, read_when, refuse_unknown

Function = TypeVar("Function", bound=Callable[..., Any])


def _input_of(function: Callable[..., Any], wrong: list[str]) -> BodyInput:
    """Read the input of a body; any input, if its signature cannot be read."""
    try:
        return input_of_body(function)
    except (TypeError, NameError, ValueError) as error:
        wrong.append(str(error))
        return BodyInput(taken=True, type=Any)


class App:
    """Collects what an application declares; `definitions` checks all of it at once.

    A process of an older `generation` than the one that declared last changes nothing. The
    `version` of the code is shown with workers, and with what fails in them. `defaults` are terms
    of all its jobs and manifests that state nothing else: `App("a", defaults={"timeout": 60})`.
    `tz` is the zone of all cadences that state none, the same as `defaults={"tz": ...}`.
    """

    def __init__(
        self,
        name: str,
        *,
        generation: int = 0,
        version: str = "",
        defaults: DefaultTerms | None = None,
        tz: str | None = None,
    ) -> None:
        self.name = check_app_name(name)
        self.version = version
        refuse_unknown("the defaults of App", defaults or {}, DefaultTerms)
        terms: DefaultTerms = {**defaults} if defaults else {}
        if tz is not None and terms.setdefault("tz", tz) != tz:
            raise TypeError(
                f"App() takes tz={tz!r} and defaults={{'tz': {terms['tz']!r}}}: state one zone"
            )
        self._declared = Declarations(owner=self.name, generation=generation, defaults=terms)

    @property
    def jobs(self) -> dict[str, Job]:
        """The jobs whose bodies are here."""
        found = self._declared.jobs.items()
        return {name: job for name, job in found if isinstance(job, Job) and not job.elsewhere}

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
        batch: int = 1,
        process: bool = False,
        worker_concurrency: int | None = None,
        capture_logging: bool = False,
        elsewhere: bool = False,
        labels: Mapping[str, str] | None = None,
        **options: Unpack[WorkOptions],
    ) -> Callable[[Function], Function]:
        """Declare a function as a job. It takes a context and, if it likes, one typed input.

        `max_active` and `rate` limit it over all its manifests; without `counts_globally` it is
        let through a full house. Work with an equal `concurrency_key` runs one after the other.
        A job with a `batch` is a short one: so many runs may share a lease. Work that has not
        begun within `start_within` seconds expires.

        With `process` each run has a process of its own, for work that keeps a core busy. A
        worker runs no more than `worker_concurrency` of the job at once. With
        `capture_logging` what the body says through Python's logging is kept with its run.

        Its manifests have its `labels`, besides those of their own.

        A job that is `elsewhere` has its body in another program, in any language: the function
        only tells its input, and workers of this app leave its runs to others.
        """
        refuse_unknown("job", options, WorkOptions)

        def declare(function: Function) -> Function:
            wrong: list[str] = []
            body_input = _input_of(function, wrong)
            stated = read_options(options, wrong)
            # `None` leaves a term to the defaults of the app; one that these lack takes no `None`.
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
                takes_input=body_input.taken,
                input_type=body_input.type,
                default_input=body_input.default,
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
            self._declared.problems += [f"job {name!r}: {one}" for one in wrong]
            self._declared.problems += problems_of_running(job)
            self._declared.add_job(job)
            return function

        return declare

    def group(
        self,
        name: str,
        *,
        max_active: int | None = None,
        priority: int | None = None,
        enabled: bool | None = None,
        rate: RateGiven = None,
    ) -> None:
        """State settings of a group: how many runs at once, how many in a stretch of time, and
        its priority from 0 to 31.

        What is not stated is the operator's.
        """
        wrong: list[str] = []
        group = GroupDefinition(
            name=name,
            max_active=max_active,
            priority=priority,
            enabled=enabled,
            rate=read_rate(rate, wrong),
        )
        self._declared.problems += [f"group {name!r}: {one}" for one in wrong]
        self._declared.groups.append(("", group))

    def schedule(
        self,
        external_id: str,
        *,
        job: JobGiven,
        when: When,
        input: Any = None,  # noqa: A002
        **terms: Unpack[Terms],
    ) -> Chain:
        """Schedule a declared job under an id of its own, with an input."""
        refuse_unknown("schedule", terms, Terms)
        cadence = read_when(when, f"manifest {external_id!r}", self._declared.problems)
        self._declared.drafts.append(
            Draft(external_id=external_id, job=job, when=cadence, input=input, terms=terms)
        )
        return self.manifest(external_id)

    def schedule_many(
        self,
        name: str,
        *,
        job: JobGiven,
        items: Items,
        when: When,
        key: Callable[[Any], str | int] | None = None,
        prune: bool = True,
        configure: Configure | None = None,
        **terms: Unpack[Terms],
    ) -> Chain:
        """Schedule a job once for each item, as manifests `name-<id>` in a group of that name.

        Items are a mapping from id to input, `(id, input)` pairs, `Item`s, or anything with a
        `key` function that tells the id. With `prune`, manifests whose item is gone are deleted.
        """
        refuse_unknown("schedule_many", terms, Terms)
        cadence = read_when(when, f"batch {name!r}", self._declared.problems)
        batch = BatchDraft(
            name=name, job=job, items=items, when=cadence, key=key, prune=prune,
            configure=configure, terms=terms,
        )  # fmt: skip
        for draft in add_batch(self._declared, batch):
            if draft.depends_on is not None:
                self._declared.problems.append(
                    f"{draft.called}: it has a cadence and a depends_on: hang it on its parent "
                    "with include_many instead"
                )
        return Chain(self._declared, root=None, cursor=None, after=name)

    def manifest(self, external_id: str) -> Chain:
        """A manifest that is declared anywhere in this app, to hang dependents on."""
        return Chain(self._declared, root=external_id, cursor=external_id)

    def definitions(self, defaults: Defaults = BUILT_IN) -> Definitions:
        """Everything declared, as plain data; raises with all problems at once.

        `defaults` hold where neither a definition nor the app itself states otherwise.
        """
        return assemble(self._declared, defaults)
