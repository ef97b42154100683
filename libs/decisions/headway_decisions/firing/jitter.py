"""Jitter: delay a due time, but not beyond the next one."""

from datetime import datetime, timedelta
from math import ceil
from uuid import NAMESPACE_OID, uuid5

from headway_decisions.firing import identity
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing

_CHANCES = 1 << 128
_JITTER = uuid5(NAMESPACE_OID, "headway.jitter")


def fire_at(kept: Timing, external_id: str, due_at: datetime, jitter_seconds: float) -> datetime:
    """Return when a due time fires: never early, and before the next one is due."""
    # Two due times that are ripe together are a misfire, so a long jitter is half of the step.
    following = timing.next_due(kept, due_at) if jitter_seconds else None
    if following is not None:
        step = (following - due_at).total_seconds()
        # Whole seconds are drawn, so a fraction may add one.
        if ceil(jitter_seconds) >= step:
            jitter_seconds = max(0.0, step / 2 - 1)
    return draw_jitter(external_id, due_at, jitter_seconds)


def draw_jitter(external_id: str, due_at: datetime, jitter_seconds: float) -> datetime:
    """Return a due time with its jitter, which is a hash of the manifest's id and the time."""
    if not jitter_seconds:
        return due_at
    chance = uuid5(_JITTER, f"{external_id}:{identity.stamp(due_at)}").int / _CHANCES
    return due_at + timedelta(seconds=int(chance * (jitter_seconds + 1)))
