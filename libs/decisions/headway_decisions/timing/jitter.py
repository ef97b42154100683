"""When a due time is let go: its jitter, kept within the step to the next one."""

from datetime import datetime
from math import ceil

from headway_decisions.firing import identity
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing


def fire_at(kept: Timing, external_id: str, due_at: datetime, jitter_seconds: float) -> datetime:
    """When a due time is let go: never early, and before the next one is due.

    A jitter that reached the next due time would keep that one waiting, and of the two that are
    then ripe together most misfire policies fire only one. Where it is as long as the step, it is
    drawn from half of the step.
    """
    following = timing.next_due(kept, due_at) if jitter_seconds else None
    if following is not None:
        step = (following - due_at).total_seconds()
        # Whole seconds are drawn: a part of one may make one more.
        if ceil(jitter_seconds) >= step:
            jitter_seconds = max(0.0, step / 2 - 1)
    return identity.fire_at(external_id, due_at, jitter_seconds)
