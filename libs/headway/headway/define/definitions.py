"""The definitions of an app as plain data, which can be compared, hashed, sent and stored."""

import hashlib
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from headway_contract.fields import MaxActive, Priority, Rate
from headway_contract.work import MOST_RUNS_OF_A_LEASE, WorkTerms, terms_of
from headway_decisions.declaring import ownership
from headway_decisions.firing.manifest_state import LONGEST_JITTER_SECONDS, Misfire, Overlap
from headway_decisions.timing.timing import Timing
from msgspec import Meta, Struct, field

from headway.define import inputs

Generation = Annotated[int, Meta(ge=0)]
Jitter = Annotated[float, Meta(ge=0, le=LONGEST_JITTER_SECONDS)]

# Labels, by which operators find manifests and pause them together.
LabelName = Annotated[str, Meta(max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$(?!\n)")]
LabelValue = Annotated[str, Meta(max_length=100, pattern=r"^[^\x00-\x1f]*$")]
Labels = Annotated[dict[LabelName, LabelValue], Meta(max_length=30)]

# The owner of manifests that are created at run time. No application prunes them.
API_OWNER = ownership.API_OWNER


class InvalidDefinitions(Exception):
    """One or more definitions are invalid; all problems are listed."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class GroupDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a group. `None` means the default, unless an operator has set a value."""

    name: str
    max_active: MaxActive | None = None
    priority: Priority | None = None
    enabled: bool | None = None
    rate: Rate | None = None


class JobTerms(WorkTerms, frozen=True, kw_only=True, omit_defaults=True):
    """Terms of a job's work, unless a manifest sets others. The default group has its name."""

    group: str | None = None
    labels: Labels = field(default_factory=dict)


class JobDefinition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job: the name that workers serve, its input, and its limits over all manifests."""

    name: str
    title: str = ""
    category: str = ""
    description: str = ""
    input_schema: dict[str, Any] | None = None
    takes_input: bool = True
    max_active: MaxActive | None = None
    rate: Rate | None = None
    counts_globally: bool = True
    batch: Annotated[int, Meta(ge=1, le=MOST_RUNS_OF_A_LEASE)] | None = None
    # For enqueued work, and manifests created at run time; a manifest from code has its own.
    terms: JobTerms = JobTerms()

    def problem_of_input(self, raw: Any) -> str | None:
        """Return why the job does not accept an input, or `None`."""
        return inputs.problem_of_input(self.input_schema, self.takes_input, raw)


# Fields of a manifest that its job has as well.
INHERITABLE = ("group", *WorkTerms.__struct_fields__, "labels")
if TYPE_CHECKING:
    Inheritable = str
else:
    Inheritable = Literal[INHERITABLE]


class ManifestDefinition(WorkTerms, frozen=True, kw_only=True, omit_defaults=True):
    """A manifest: a job, its input and its timing.

    A dependent has no cadence: it names its parent in `depends_on` and fires at the parent's
    success. A `dormant` one fires only when the parent's run wakes it.
    """

    external_id: str
    job: str
    group: str
    timing: Timing
    input: Any = None
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    jitter_seconds: Jitter = 0.0
    enabled: bool = True
    depends_on: str | None = None
    dormant: bool = False
    batch: str | None = None
    labels: Labels = field(default_factory=dict)
    # The fields that the scheduler copies from the job, which the client does not know.
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
        """Return a hash that is equal for equal definitions."""
        # A round trip through JSON converts a user's 60 to 60.0.
        decoded = msgspec.json.decode(msgspec.json.encode(self), type=ManifestDefinition)
        return hashlib.sha256(msgspec.json.encode(decoded, order="sorted")).hexdigest()


class Batch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Manifests that are declared together; `prune` deletes manifests of removed items."""

    name: str
    prune: bool = True


class Definitions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All definitions of an app.

    Definitions of a lower generation than the stored one change nothing: they come from an old
    process that was restarted during a roll-out.
    """

    owner: str
    generation: Generation = 0
    groups: tuple[GroupDefinition, ...] = ()
    jobs: tuple[JobDefinition, ...] = ()
    manifests: tuple[ManifestDefinition, ...] = ()
    batches: tuple[Batch, ...] = ()
