"""What a manifest does when time passed it by, and when its last work is still under way."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

MOST_SLOTS = 1000
MOST_CAUGHT_UP = 1000
LONGEST_JITTER_SECONDS = 86_400


class Misfire(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of fire times that nobody was there to decide.

    `fire_once` fires for the latest of them. `skip` fires only if the latest is no older
    than the threshold. `catch_up` fires for the last `limit` of them whatever the overlap policy
    says, one after the other or as many at once as `allow` lets: only for jobs that may run twice
    without harm.
    """

    policy: Literal["fire_once", "skip", "catch_up"] = "fire_once"
    threshold_seconds: Annotated[float, Meta(ge=0, le=10 * 366 * 86_400)] = 60.0
    limit: Annotated[int, Meta(ge=1, le=MOST_CAUGHT_UP)] = 1


class Overlap(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What becomes of a fire time while earlier work of the manifest is under way.

    `skip` drops it. `queue_one` lets one wait. `allow` lets up to `limit` run at once.
    `cancel_running` asks what is under way to stop and lets the new one follow.
    """

    policy: Literal["skip", "queue_one", "allow", "cancel_running"] = "skip"
    limit: Annotated[int, Meta(ge=1, le=MOST_SLOTS)] = 1

    @property
    def slots(self) -> int:
        """How many pieces of work may be under way at once."""
        return self.limit if self.policy == "allow" else 1
