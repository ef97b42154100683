"""Preview the next fire times of a manifest, and explain why they may not fire."""

from datetime import datetime, timedelta
from typing import Any

from headway_contract.manifests import FireTime
from headway_decisions import wording
from headway_decisions.firing import jitter
from headway_decisions.timing import timing
from headway_decisions.timing.cadence import Manual, Once, Spaced
from headway_decisions.timing.calendar import SEARCH
from headway_decisions.timing.timing import Timing
from headway_decisions.wording import utc
from msgspec import structs

_INSTANT = timedelta(microseconds=1)
# Limits of folding: excluded times that are counted, and exclusions that are named.
_MOST_COUNTED = 25_000
_MOST_NAMED = 5

_HOLDS = {
    "job_retired": "no application declares its job any more: these times will be skipped until "
    "one does",
    "group_disabled": "its group is disabled: these times will be skipped until it is enabled",
    "manifest_disabled": "it is disabled: these times will be skipped until it is enabled",
    "paused": "it is paused: times that come due are decided when the pause ends, by its misfire "
    "policy",
    "blocked_by_dead_letter": "a dead letter blocks it: these times will be skipped until that "
    "is resolved",
}


def fire_time(external_id: str, kept: Timing, due_at: datetime, jitter_seconds: float) -> FireTime:
    """Describe one due time: jitter, local time, exclusion and clock change."""
    return FireTime(
        due_at=due_at,
        fire_at=jitter.fire_at(kept, external_id, due_at, jitter_seconds),
        local=timing.local(kept, due_at),
        excluded=timing.excluded_by(kept, due_at),
        dst=timing.clock_change(kept, due_at),
    )


def fires_at_of(row: Any, kept: Timing, due_at: datetime) -> datetime:
    """Return when a stored manifest fires for a due time, with its jitter."""
    return jitter.fire_at(kept, row["external_id"], due_at, row["jitter_seconds"])


def first_ahead(row: Any, kept: Timing, now: datetime) -> datetime | None:
    """Return the next due time that can still fire, also one that jitter delays."""
    stored: datetime | None = row["next_due_at"]
    if stored is not None and fires_at_of(row, kept, stored) > now:
        return stored
    if isinstance(kept.cadence, Once):
        # A one-shot whose time was decided never fires again.
        return None
    return timing.next_due(kept, now)


def note_of(row: Any, kept: Timing, hold: str | None, *, has_times: bool) -> str:
    """Explain why there are no fire times, or why they may not fire."""
    notes = []
    if row["trouble"]:
        notes.append(f"it cannot be judged for now: {row['trouble']}")
    if row["depends_on"] is not None:
        woken = "only when a run of it asks for that" if row["dormant"] else "after each success"
        notes.append(f"it has no times of its own: it follows {row['parent']!r}, {woken}")
    elif isinstance(kept.cadence, Manual):
        notes.append("it has no times: it runs when it is triggered")
    elif isinstance(kept.cadence, Spaced):
        notes.append(_spaced(row, kept, kept.cadence))
    elif isinstance(kept.cadence, Once) and not has_times:
        due_at = row["next_due_at"]
        notes.append(
            "it is a one-shot and its time was decided: it will not fire again"
            if due_at is None
            else f"it is a one-shot whose one time, {utc(due_at)}, is not decided yet"
        )
    elif not has_times:
        notes.append("its timing names no further time within ten years")
    over = isinstance(kept.cadence, Once) and row["next_due_at"] is None
    if hold is not None and not over:
        notes.append(_HOLDS[hold])
    return "; ".join(notes)


def previewed(
    row: Any, kept: Timing, *, count: int, after: datetime | None, now: datetime, each: bool = False
) -> list[FireTime]:
    """Return the next fire times after `after` or now; excluded times between them are folded."""
    first = first_ahead(row, kept, now) if after is None else timing.next_due(kept, after)
    if isinstance(kept.cadence, Once) and row["next_due_at"] is None:
        first = None
    fires: list[FireTime] = []
    firing = 0
    while first is not None and firing < count:
        fire = fire_time(row["external_id"], kept, first, row["jitter_seconds"])
        if each or fire.excluded is None:
            firing += 1
            following = timing.next_due(kept, first)
        else:
            following = timing.next_allowed(kept, first)
            fire = _folded(kept, fire, following)
        fires.append(fire)
        first = following
    return fires


def _folded(kept: Timing, first: FireTime, reopens: datetime | None) -> FireTime:
    """Fold consecutive excluded times into the first of them."""
    end = first.due_at + SEARCH if reopens is None else reopens - _INSTANT
    last = timing.latest_due(kept, first.due_at, end)
    if last is None:
        return first
    return structs.replace(
        first,
        excluded=" and ".join(_exclusions(kept, first.due_at, last)),
        until=last,
        times=_count(kept, first.due_at, last),
    )


def _count(kept: Timing, first: datetime, last: datetime) -> int:
    """Count the due times from the first to the last; 0 if there are too many."""
    due_at: datetime | None = first
    for times in range(1, _MOST_COUNTED + 1):
        if due_at == last:
            return times
        due_at = timing.next_due(kept, due_at) if due_at is not None else None
    return 0


def _exclusions(kept: Timing, at: datetime | None, last: datetime) -> list[str]:
    """Name the exclusions that cover the times up to the last, at most `_MOST_NAMED`."""
    found: dict[str, None] = {}
    for _ in range(_MOST_NAMED):
        if at is None or at > last:
            break
        for exclusion in kept.exclusions:
            alone = structs.replace(kept, exclusions=(exclusion,))
            if timing.excluded_by(alone, at) is not None:
                found[str(exclusion)] = None
                at = timing.next_allowed(alone, at)
                break
    return list(found)


def _spaced(row: Any, kept: Timing, cadence: Spaced) -> str:
    spacing = wording.duration(cadence.seconds)
    if row["outstanding"]:
        return f"it fires {spacing} after the work under way has ended"
    if row["next_due_at"] is not None:
        fires_at = utc(fires_at_of(row, kept, row["next_due_at"]))
        return f"it fires next at {fires_at}, and then {spacing} after its work has ended"
    return f"it fires {spacing} after its work has ended"
