"""What an app declares, as plain data: this is what the scheduler stores.

Definitions know no function and no module, so they can be compared, hashed and sent.
"""

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from headway_contract.work import MOST_RUNS_OF_A_LEASE, Priority, Rate, WorkTerms, terms_of
from headway_decisions.declaring import ownership
from headway_decisions.firing.manifest_state import LONGEST_JITTER_SECONDS, Misfire, Overlap
from headway_decisions.timing.timing import Timing
from msgspec import Meta, Struct, field

# How many runs may hold a limit's slots at once, at the most that anybody states.
Cap = Annotated[int, Meta(ge=0, le=1_000_000)]

# Names and values by which people find manifests, and pause them together.
LabelName = Annotated[str, Meta(max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$(?!\n)")]
LabelValue = Annotated[str, Meta(max_length=100, pattern=r"^[^\x00-\x1f]*$")]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=30)]

# Who owns manifests that were made at run time. No start of an application prunes them.
API_OWNER = ownership.API_OWNER


class InvalidDefinitions(Exception):
    """One or more definitions cannot be used; every problem is listed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class GroupDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a group. `None` states nothing: the default holds unless an operator set it."""

    name: str
    max_active: Cap | None = None
    priority: Priority | None = None
    enabled: bool | None = None
    rate: Rate | None = None


class JobTerms(WorkTerms, frozen=True, kw_only=True, omit_defaults=True):
    """Terms of a job's work where no manifest states others. The default group has its name."""

    group: str | None = None
    labels: Labels = field(default_factory=dict)


class JobDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job: a name that workers serve, what its input looks like, and how people call it.

    Its limits hold over all manifests and groups.
    `terms` are those of work that is enqueued, and of manifests made at run time that state
    nothing else; a manifest of code has its own.
    """

    name: str
    title: str = ""
    category: str = ""
    description: str = ""
    input_schema: dict[str, Any] | None = None
    takes_input: bool = True
    max_active: Cap | None = None
    rate: Rate | None = None
    counts_globally: bool = True
    batch: Annotated[int, Meta(ge=1, le=MOST_RUNS_OF_A_LEASE)] = 1
    terms: JobTerms = JobTerms()


# Fields of a manifest that its job states as well.
INHERITABLE = ("group", *WorkTerms.__struct_fields__, "labels")
if TYPE_CHECKING:
    Inheritable = str
else:
    Inheritable = Literal[INHERITABLE]


class ManifestDefinition(WorkTerms, frozen=True, kw_only=True, omit_defaults=True):
    """What runs and when.

    A dependent has no cadence of its own: it names its parent in `depends_on` and fires at
    the parent's success, or if it is `dormant` only when the parent's run says so.

    `inherited` names the fields that the scheduler takes from the declared job, because whoever
    made the manifest did not state them and does not have the job. Labels are added to its own.
    """

    external_id: str
    job: str
    group: str
    timing: Timing
    input: Any = None
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    jitter_seconds: Annotated[float, Meta(ge=0, le=LONGEST_JITTER_SECONDS)] = 0.0
    enabled: bool = True
    depends_on: str | None = None
    dormant: bool = False
    batch: str | None = None
    labels: Labels = field(default_factory=dict)
    inherited: tuple[Inheritable, ...] = ()

    def with_terms_of(self, job: JobDefinition) -> "ManifestDefinition":
        """Return the manifest with the inherited fields filled in from its job."""
        offered = {
            **terms_of(job.terms),
            "group": job.terms.group or job.name,
            "labels": {**job.terms.labels, **self.labels},
        }
        taken = {name: offered[name] for name in self.inherited}
        return msgspec.structs.replace(self, **taken)

    def fingerprint(self) -> str:
        """Equal for equal definitions: an unchanged one writes nothing.

        Taken of what a journey makes of it, which turns the 60 of a user into 60.0.
        """
        travelled = msgspec.json.decode(msgspec.json.encode(self), type=ManifestDefinition)
        return hashlib.sha256(msgspec.json.encode(travelled, order="sorted")).hexdigest()


class Batch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Manifests that were declared together; `prune` deletes those that have left it."""

    name: str
    prune: bool = True


class Definitions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that one app declares.

    An app of a lower generation than the one that declared last changes nothing: it is an
    old process that was started again in the middle of a roll-out.
    """

    owner: str
    generation: Annotated[int, Meta(ge=0)] = 0
    groups: tuple[GroupDefinition, ...] = ()
    jobs: tuple[JobDefinition, ...] = ()
    manifests: tuple[ManifestDefinition, ...] = ()
    batches: tuple[Batch, ...] = ()
