"""What has been declared so far, as it was stated; `assembly` turns it into definitions.

Nothing is refused here except what could not even be kept: problems are noted, and all of
them are told when the definitions are asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from headway_contract.names import InvalidName, check_name
from headway_contract.work import RetryPolicy

from headway.define.calendar import Excluded
from headway.define.defaults import DefaultTerms
from headway.define.definitions import API_OWNER, Batch, GroupDefinition
from headway.define.jobs import DeclaredJob
from headway.define.options import MisfireGiven, OverlapGiven, Retry, WorkOptions
from headway.define.when import When

JobGiven = Callable[..., Any] | str


class DependentTerms(WorkOptions, total=False):
    """What a manifest may state for itself; what it leaves out is its job's."""

    group: str | None
    retry: Retry | RetryPolicy | None
    overlap: OverlapGiven
    enabled: bool | None
    labels: Mapping[str, str] | None


class Terms(DependentTerms, total=False):
    """The same for a manifest with a cadence; it goes before what the cadence states."""

    misfire: MisfireGiven
    exclude: Excluded
    jitter: float | None


# Terms that say nothing about what has no fire times of its own.
OF_FIRE_TIMES: tuple[Literal["jitter", "misfire", "exclude"], ...] = (
    "jitter",
    "misfire",
    "exclude",
)


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A manifest as it was stated. `where` is the place in a file, if it came from one.

    A draft from a file that has no job was complained of already. One without an id is what a
    batch states for items that it does not have.
    """

    external_id: str
    job: JobGiven | None
    when: When | None = None
    input: Any = None
    terms: Terms = field(default_factory=Terms)
    depends_on: str | None = None
    dormant: bool = False
    batch: str | None = None
    decorated: bool = False
    where: str = ""

    @property
    def called(self) -> str:
        """The manifest in the words of a problem."""
        if not self.external_id:
            return f"{self.where}batch {self.batch!r}"
        return f"{self.where}manifest {self.external_id!r}"


@dataclass
class Declarations:
    """Everything that one application has stated."""

    owner: str
    generation: int = 0
    jobs: dict[str, DeclaredJob] = field(default_factory=dict)
    groups: list[tuple[str, GroupDefinition]] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    unused: list[Draft] = field(default_factory=list)
    batches: dict[str, Batch] = field(default_factory=dict)
    defaults: DefaultTerms = field(default_factory=DefaultTerms)
    problems: list[str] = field(default_factory=list)
    # Made by a client: jobs and parents are declared elsewhere, and known by name alone.
    at_run_time: bool = False

    def add_job(self, job: DeclaredJob) -> None:
        """Keep a job; what is wrong with its name is told with all else, if it is text at all."""
        if not isinstance(job.name, str):
            self.problems.append(f"{job.where}job name {job.name!r} is not valid: write text")
            return
        if job.name in self.jobs:
            self.problems.append(
                f"{job.where}job {job.name!r} is declared twice: give one of them another name"
            )
        self.jobs[job.name] = job

    def add_batch(self, batch: Batch, where: str = "") -> None:
        """Keep a batch, which exists even if it is empty."""
        try:
            check_name("batch", batch.name)
        except InvalidName as error:
            self.problems.append(f"{where}{error}")
            return
        if batch.name in self.batches:
            self.problems.append(
                f"{where}batch {batch.name!r} is declared twice: give one of them another name, "
                "or put their items together"
            )
        self.batches[batch.name] = batch


def check_app_name(name: object) -> str:
    """Return an app's name if it may be one."""
    if name == API_OWNER:
        raise InvalidName(
            f"app name {API_OWNER!r} is reserved for manifests that are made at run time: "
            "use another one"
        )
    return check_name("app", name)
