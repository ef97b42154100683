"""When a due time is let go: its jitter, kept within the step to the next one."""

from datetime import datetime, timedelta
from math import ceil
from uuid import NAMESPACE_OID, uuid5

from headway_decisions.firing import identity
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing

_CHANCES = 1 << 128
_JITTER = uuid5(NAMESPACE_OID, "headway.jitter")


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
    return draw_jitter(external_id, due_at, jitter_seconds)


def draw_jitter(external_id: str, due_at: datetime, jitter_seconds: float) -> datetime:
    """When a due time is let go: never early, and the same whenever it is asked.

    The chance is drawn from the names of manifest and time, so it is known before there is such a
    manifest, and no restart draws anew.
    """
    if not jitter_seconds:
        return due_at
    chance = uuid5(_JITTER, f"{external_id}:{identity.stamp(due_at)}").int / _CHANCES
    return due_at + timedelta(seconds=int(chance * (jitter_seconds + 1)))
