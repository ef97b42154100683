"""The declarations of an app and their problems, which `assembly` turns into definitions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headway_contract.fields import InvalidName, check_name
from headway_contract.work import RetryPolicy
from msgspec import Struct

from headway.define.calendar import Excluded
from headway.define.defaults import DefaultTerms
from headway.define.definitions import API_OWNER, Batch, GroupDefinition
from headway.define.jobs import DeclaredJob, Job
from headway.define.options import MisfireGiven, OverlapGiven, Retry, WorkOptions
from headway.define.when import When

JobGiven = Callable[..., Any] | str


class DependentTerms(WorkOptions, total=False):
    """Options of a manifest; `None` inherits the job's."""

    group: str | None
    retry: Retry | RetryPolicy | None
    overlap: OverlapGiven
    enabled: bool | None
    labels: Mapping[str, str] | None


class Terms(DependentTerms, total=False):
    """Options of a manifest with a cadence; they override those of the cadence."""

    misfire: MisfireGiven
    exclude: Excluded
    jitter: float | None


# Options that apply only to manifests with fire times.
OF_FIRE_TIMES = ("jitter", "misfire", "exclude")


class Draft(Struct, frozen=True):
    """A declared manifest. `where` is its place in a file, if it came from one."""

    external_id: str
    job: JobGiven | None
    when: When | None = None
    input: Any = None
    terms: Mapping[str, Any] = {}
    depends_on: str | None = None
    dormant: bool = False
    batch: str | None = None
    decorated: bool = False
    where: str = ""

    @property
    def called(self) -> str:
        """The name of the manifest in messages."""
        return f"{self.where}manifest {self.external_id!r}"


Configure = Callable[["Item"], Mapping[str, Any]]


class Item(Struct, frozen=True):
    """A manifest of a batch; `depends_on` is its parent: a full id, or the function of a job."""

    id: str | int
    input: Any = None
    depends_on: JobGiven | None = None


Items = Mapping[Any, Any] | Iterable[Any]


class BatchDraft(Struct, frozen=True, kw_only=True):
    """A declared batch. Items without a `depends_on` get that of the batch."""

    name: str
    job: JobGiven | None
    items: Items
    key: Callable[[Any], str | int] | None = None
    when: When | None = None
    depends_on: str | None = None
    dormant: bool = False
    prune: bool = True
    configure: Configure | None = None
    terms: Mapping[str, Any]
    where: str = ""
    # The place of each item in a file, by its id.
    places: dict[str, str] = {}

    @property
    def called(self) -> str:
        """The name of the batch in messages."""
        return f"{self.where}batch {self.name!r}"


class Declarations(Struct):
    """All declarations of an application."""

    owner: str
    generation: int = 0
    jobs: dict[str, DeclaredJob] = {}
    groups: list[tuple[str, GroupDefinition]] = []
    drafts: list[Draft] = []
    # Batches whose job and cadence no item uses.
    unused: list[BatchDraft] = []
    batches: dict[str, Batch] = {}
    defaults: DefaultTerms = {}
    problems: list[str] = []
    # Made by a client: jobs and parents are known only by name.
    at_run_time: bool = False

    def all_drafts(self) -> list[Draft]:
        """Return all manifests; those of cadences that decorate a job are first."""
        decorated = [
            Draft(f"{job.name}-{when.name}", job.name, when=when, decorated=True)
            for job in self.jobs.values()
            for when in job.marks().cadences
        ]
        return [*decorated, *self.drafts]

    def find_job(self, given: JobGiven | None) -> DeclaredJob | None:
        """Return a job by its name or its function."""
        if isinstance(given, str):
            return self.jobs.get(given)
        bodies = [job for job in self.jobs.values() if isinstance(job, Job)]
        return next((job for job in bodies if job.function is given), None)

    def name_of(self, job: JobGiven) -> str:
        """Return the name of a job, which may be given as its function."""
        found = self.find_job(job)
        return name_of_function(job) if found is None else found.name

    def manifest_of(self, given: JobGiven) -> str:
        """Return a manifest's id; a function stands for the only manifest of its job so far."""
        if not callable(given):
            return given
        name = self.name_of(given)
        ids = [draft.external_id for draft in self.all_drafts() if draft.job in (given, name)]
        if len(ids) > 1:
            some = ", ".join(map(repr, ids[:5])) + (", …" if len(ids) > 5 else "")
            self.problems.append(
                f"job {name!r} has {len(ids)} manifests, so its function does not stand for one: "
                f"name the parent by its id ({some})"
            )
        return ids[0] if ids else name

    def add_job(self, job: DeclaredJob) -> None:
        """Add a job, if its name is text; `assembly` checks the name."""
        if not isinstance(job.name, str):
            self.problems.append(f"{job.where}job name {job.name!r} is not valid: write text")
            return
        if job.name in self.jobs:
            self.problems.append(
                f"{job.where}job {job.name!r} is declared twice: give one of them another name"
            )
        self.jobs[job.name] = job

    def add_batch(self, batch: Batch, where: str = "") -> None:
        """Add a batch, which may be empty."""
        try:
            check_name("batch", batch.name)
        except InvalidName as error:
            self.problems.append(f"{where}{error}")
            return
        if batch.name in self.batches:
            self.problems.append(
                f"{where}batch {batch.name!r} is declared twice: give one of them another name, "
                "or merge their items"
            )
        self.batches[batch.name] = batch


def name_of_function(given: object) -> str:
    """Return a name for messages, of a function or of another value."""
    return given if isinstance(given, str) else getattr(given, "__qualname__", repr(given))


def check_app_name(name: object) -> str:
    """Return the name of an app if it is valid."""
    if name == API_OWNER:
        raise InvalidName(
            f"app name {API_OWNER!r} is reserved for manifests that are created at run time: "
            "use another name"
        )
    return check_name("app", name)
