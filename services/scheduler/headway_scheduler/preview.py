"""Which fire times lie ahead of a manifest, and why they may not come."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headway_contract.scheduling import FireTime
from headway_decisions import jitter, timing, words
from headway_decisions.cadence import Manual, Once, Spaced
from headway_decisions.timing import Timing

_INSTANT = timedelta(microseconds=1)

_HOLDS = {
    "group_disabled": "its group is disabled: these times will be skipped until it is enabled",
    "manifest_disabled": "it is disabled: these times will be skipped until it is enabled",
    "paused": "it is paused: what comes due meanwhile is decided when that ends, by its misfire "
    "policy",
    "blocked_by_dead_letter": "a dead letter blocks it: these times will be skipped until that "
    "is resolved",
}


def fire_time(manifest: UUID, kept: Timing, due_at: datetime, jitter_seconds: float) -> FireTime:
    """One due time with all that is odd about it."""
    return FireTime(
        due_at=due_at,
        fire_at=jitter.fire_at(kept, manifest, due_at, jitter_seconds),
        local=timing.local(kept, due_at),
        excluded=timing.excluded_by(kept, due_at),
        dst=timing.clock_change(kept, due_at),
    )


def due_times(kept: Timing, first: datetime | None) -> Iterator[datetime]:
    """All due times from the first on."""
    while first is not None:
        yield first
        first = timing.next_due(kept, first)


def first_ahead(row: Any, kept: Timing, now: datetime) -> datetime | None:
    """The next due time that can still fire: one that its jitter holds back counts too."""
    stored: datetime | None = row["next_due_at"]
    if stored is not None:
        fires_at = jitter.fire_at(kept, row["id"], stored, row["jitter_seconds"])
        if fires_at > now:
            return stored
    if isinstance(kept.cadence, Once):
        # A one-shot whose time was decided never comes again, whatever its clock says.
        return None
    return timing.next_due(kept, now)


def note_of(row: Any, kept: Timing, hold: str | None, *, has_times: bool) -> str:
    """Why there are no fire times, or why they may not come."""
    notes = []
    if row["trouble"]:
        notes.append(f"it cannot be judged for now: {row['trouble']}")
    if row["depends_on"] is not None:
        woken = "only when a run of it asks for that" if row["dormant"] else "after each success"
        notes.append(f"it has no times of its own: it follows {row['parent']!r}, {woken}")
    elif isinstance(kept.cadence, Manual):
        notes.append("it has no times: it runs when somebody triggers it")
    elif isinstance(kept.cadence, Spaced):
        notes.append(_spaced(row, kept.cadence))
    elif isinstance(kept.cadence, Once) and not has_times:
        notes.append("it is a one-shot and its time was decided: it will not fire again")
    elif not has_times:
        notes.append("its timing names no further time within ten years")
    if hold is not None and not (hold == "manifest_disabled" and row["disabled_by"] == "once"):
        notes.append(_HOLDS[hold])
    return "; ".join(notes)


def previewed(
    row: Any, kept: Timing, *, count: int, after: datetime | None, now: datetime
) -> list[FireTime]:
    """The next fire times, from `after` on or from now."""
    first = first_ahead(row, kept, now) if after is None else timing.next_due(kept, after)
    if isinstance(kept.cadence, Once) and row["next_due_at"] is None:
        first = None
    fires = []
    for due_at in due_times(kept, first):
        fires.append(fire_time(row["id"], kept, due_at, row["jitter_seconds"]))
        if len(fires) == count:
            break
    return fires


def _spaced(row: Any, cadence: Spaced) -> str:
    spacing = words.duration(cadence.seconds)
    if row["outstanding"]:
        return f"it fires {spacing} after the work under way has ended"
    if row["next_due_at"] is not None:
        next_at = f"{row['next_due_at']:%Y-%m-%d %H:%M:%S} UTC"
        return f"it fires next at {next_at}, and then {spacing} after its work has ended"
    return f"it fires {spacing} after its work has ended"
