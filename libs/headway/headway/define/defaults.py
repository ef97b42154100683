"""Default terms of manifests and jobs.

The first value that is set wins: the manifest's, its cadence's, its job's, the app's defaults, the
environment of the declaring process (`DefinitionSettings`), the built-in value.
"""

from typing import Annotated, Literal, TypedDict

from headway_contract.fields import Count, Priority, Seconds
from headway_contract.work import Grace, RetryPolicy, Timeout, WorkTerms
from headway_decisions.firing.manifest_state import Misfire, Overlap
from headway_decisions.timing import timing_problems
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from headway.define import options
from headway.define.definitions import Jitter


class Defaults(WorkTerms, frozen=True, kw_only=True):
    """Terms of manifests and jobs that set no others."""

    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    jitter_seconds: Jitter = 0.0
    tz: str = "UTC"


BUILT_IN = Defaults()


class DefaultTerms(TypedDict, total=False):
    """Defaults that an app may set for all of its jobs and manifests."""

    priority: int | None
    retry: options.Retry | RetryPolicy | None
    timeout: float | None
    cancel_grace: float | None
    misfire: options.MisfireGiven
    overlap: options.OverlapGiven
    jitter: float | None
    tz: str | None


class DefinitionSettings(Struct, frozen=True, kw_only=True):
    """Defaults from the environment of the process that declares an app; its code wins."""

    priority: Annotated[
        Priority, Meta(description="Priority of work, from 0 to 31, the most urgent.")
    ] = 0
    retry_attempts: Annotated[
        Count, Meta(description="Number of attempts, including the first.")
    ] = 3
    retry_interval_seconds: Annotated[
        Seconds, Meta(description="Delay before the second attempt.")
    ] = 60.0
    retry_backoff: Annotated[
        float, Meta(ge=1, description="Factor by which the delay grows with each attempt.")
    ] = 2.0
    retry_max_interval_seconds: Annotated[
        Seconds, Meta(description="Maximum delay that backoff reaches.")
    ] = 3600.0
    retry_jitter: Annotated[
        float, Meta(ge=0, le=1, description="Random fraction by which a delay may be extended.")
    ] = 0.1
    timeout_seconds: Annotated[Timeout, Meta(description="Maximum duration of a run.")] = 1200.0
    cancel_grace_seconds: Annotated[
        Grace, Meta(description="Time that a cancelled run has to clean up.")
    ] = 30.0
    misfire_policy: Annotated[
        str,
        Meta(
            description="Policy for missed fire times: `fire_once`, `skip`, or `catch_up:5` to "
            "fire for the last five."
        ),
    ] = "fire_once"
    misfire_threshold_seconds: Annotated[
        Seconds, Meta(description="Delay after which a fire time counts as missed.")
    ] = 60.0
    overlap_policy: Annotated[
        Literal["skip", "queue_one", "cancel_running"],
        Meta(description="Policy for a fire time while earlier work is still running."),
    ] = "skip"
    jitter_seconds: Annotated[
        Jitter,
        Meta(description="Maximum random delay of a fire, to spread fires that are due at once."),
    ] = 0.0
    tz: Annotated[
        str,
        Meta(
            description="Zone of cadences, such as `Europe/Berlin`, if neither the cadence nor its "
            "app sets one."
        ),
    ] = "UTC"

    def defaults(self) -> Defaults:
        """Convert the settings to terms."""
        own, threshold = asdict(self), self.misfire_threshold_seconds
        of_retry = [name for name in own if name.startswith("retry_")]
        return Defaults(
            **{name: own[name] for name in Defaults.__struct_fields__ if name in own},
            retry=RetryPolicy(**{name.removeprefix("retry_"): own[name] for name in of_retry}),
            misfire=options.parse_misfire(self.misfire_policy, threshold=threshold),
            overlap=Overlap(policy=self.overlap_policy),
        )


def overlay(weaker: Defaults, stated: DefaultTerms, problems: list[str]) -> Defaults:
    """Return defaults, overridden by the defaults of an app."""
    tz = stated.get("tz")
    wrong = [] if tz is None else timing_problems.about_zone(tz)
    problems += wrong
    found = {
        **options.resolve_retry(options.read_options(stated, problems), weaker.retry),
        "jitter_seconds": stated.get("jitter"),
        "misfire": options.read_misfire(
            stated.get("misfire"), problems, threshold=weaker.misfire.threshold_seconds
        ),
        "overlap": options.read_overlap(stated.get("overlap"), problems),
        "tz": None if wrong else tz,
    }
    return replace(weaker, **{name: value for name, value in found.items() if value is not None})
