"""What manifests and jobs go by where nobody states otherwise.

The nearest statement holds: the manifest's, its cadence's, its job's, then the app's defaults, then
the environment of whoever declares (`DefinitionSettings`), then what is built in.
"""

from typing import Annotated, Literal, TypedDict

from headway_contract.work import (
    LONGEST_GRACE_SECONDS,
    LONGEST_TIMEOUT_SECONDS,
    Priority,
    RetryPolicy,
    Seconds,
    WorkTerms,
)
from headway_decisions.firing.manifest_state import LONGEST_JITTER_SECONDS, Misfire, Overlap
from headway_decisions.timing import timing_problems
from msgspec import Meta, Struct
from msgspec.structs import replace

from headway.define.options import (
    MisfireGiven,
    OverlapGiven,
    Retry,
    parse_misfire,
    read_misfire,
    read_options,
    read_overlap,
    resolve_retry,
)


class Defaults(WorkTerms, frozen=True, kw_only=True):
    """Terms that hold where nobody states otherwise."""

    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    jitter_seconds: float = 0.0
    tz: str = "UTC"


BUILT_IN = Defaults()


class DefaultTerms(TypedDict, total=False):
    """What an app may state for all of its jobs and manifests at once."""

    priority: int | None
    retry: Retry | RetryPolicy | None
    timeout: float | None
    cancel_grace: float | None
    misfire: MisfireGiven
    overlap: OverlapGiven
    jitter: float | None
    tz: str | None


class DefinitionSettings(Struct, frozen=True, kw_only=True):
    """Defaults from the environment of whoever declares an app: `scheduler`, `up`, `plan`, `apply`.

    What the code of an app states wins over them.
    """

    priority: Annotated[
        Priority, Meta(description="The priority of work, from 0 to 31, the most urgent.")
    ] = 0
    retry_attempts: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000_000,
            description="How often work is tried in total, the first time included.",
        ),
    ] = 3
    retry_interval_seconds: Annotated[
        Seconds, Meta(description="How long a failed run rests before the second attempt.")
    ] = 60.0
    retry_backoff: Annotated[
        float, Meta(ge=1, description="By what the rest grows from attempt to attempt.")
    ] = 2.0
    retry_max_interval_seconds: Annotated[
        Seconds, Meta(description="The longest rest that backoff leads to.")
    ] = 3600.0
    retry_jitter: Annotated[
        float,
        Meta(ge=0, le=1, description="Up to which part of itself a rest is prolonged by chance."),
    ] = 0.1
    timeout_seconds: Annotated[
        float,
        Meta(gt=0, le=LONGEST_TIMEOUT_SECONDS, description="How long a run may take."),
    ] = 1200.0
    cancel_grace_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=LONGEST_GRACE_SECONDS,
            description="How long a run that is told to stop has to clean up after itself.",
        ),
    ] = 30.0
    misfire_policy: Annotated[
        str,
        Meta(
            description="What becomes of fire times that nobody was there to decide: `fire_once`, "
            "`skip`, or `catch_up:5` to fire for the last five."
        ),
    ] = "fire_once"
    misfire_threshold_seconds: Annotated[
        Seconds, Meta(description="How late a fire may be before it counts as missed.")
    ] = 60.0
    overlap_policy: Annotated[
        Literal["skip", "queue_one", "cancel_running"],
        Meta(description="What becomes of a fire time while earlier work is under way."),
    ] = "skip"
    jitter_seconds: Annotated[
        float,
        Meta(
            ge=0,
            le=LONGEST_JITTER_SECONDS,
            description="Up to how much later a fire may be, so that not all go off at once.",
        ),
    ] = 0.0
    tz: Annotated[
        str,
        Meta(
            description="The zone of cadences, such as `Europe/Berlin`, where neither the cadence "
            "nor its app states one."
        ),
    ] = "UTC"

    def defaults(self) -> Defaults:
        """The same as terms."""
        return Defaults(
            priority=self.priority,
            retry=RetryPolicy(
                attempts=self.retry_attempts,
                interval_seconds=self.retry_interval_seconds,
                backoff=self.retry_backoff,
                max_interval_seconds=self.retry_max_interval_seconds,
                jitter=self.retry_jitter,
            ),
            timeout_seconds=self.timeout_seconds,
            cancel_grace_seconds=self.cancel_grace_seconds,
            misfire=parse_misfire(self.misfire_policy, threshold=self.misfire_threshold_seconds),
            overlap=Overlap(policy=self.overlap_policy),
            jitter_seconds=self.jitter_seconds,
            tz=self.tz,
        )


def overlay(weaker: Defaults, stated: DefaultTerms, problems: list[str]) -> Defaults:
    """Defaults with what an app states for all that it declares."""
    found = {
        **resolve_retry(read_options(stated, problems), weaker.retry),
        "jitter_seconds": stated.get("jitter"),
        "misfire": read_misfire(
            stated.get("misfire"), problems, threshold=weaker.misfire.threshold_seconds
        ),
        "overlap": read_overlap(stated.get("overlap"), problems),
        "tz": _read_zone(stated.get("tz"), problems),
    }
    return replace(weaker, **{name: value for name, value in found.items() if value is not None})


def _read_zone(given: object, problems: list[str]) -> object:
    """Return a zone that is known, or `None`."""
    wrong = [] if given is None else timing_problems.about_zone(given)
    problems += wrong
    return None if wrong else given
