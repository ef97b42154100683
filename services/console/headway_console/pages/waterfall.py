"""The waterfall of a run: its steps with offsets, and a bar for the time before each. Pure."""

from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from headway_console.reading.runs import RunDetails

WIDTH = 1000.0
# A short wait stays visible.
_NARROWEST = 3.0
_CLAIMED = "headway.lease.claimed."


class Step(Struct, frozen=True, kw_only=True):
    """A moment of a run; the bar is the time since the step before it, which `wait` names."""

    name: str
    wait: str
    at: datetime | None
    offset: float
    took: float | None
    x: float
    width: float
    state: str


class _Moment(NamedTuple):
    """A moment that is known, or awaited; `state` colours the time before it."""

    name: str
    at: datetime | None
    wait: str = ""
    state: str = ""


def steps_of(run: RunDetails, *, now: datetime) -> list[Step]:
    """Lay out the moments of a run; the last one is open while the run has not ended."""
    moments = _moments(run)
    # Clocks of machines differ: no step is before the one that it follows.
    times: list[datetime] = []
    for moment in moments:
        times.append(max(moment.at or now, times[-1]) if times else moment.at or now)
    whole = max((times[-1] - times[0]).total_seconds(), 1e-6)
    steps = []
    for moment, at, before in zip(moments, times, [None, *times], strict=False):
        offset = (at - times[0]).total_seconds()
        took = None if before is None else (at - before).total_seconds()
        width = max(_NARROWEST, WIDTH * (took or 0.0) / whole)
        steps.append(
            Step(
                name=moment.name,
                wait=moment.wait,
                at=moment.at and at,
                offset=offset,
                took=took,
                x=round(max(0.0, min(WIDTH * (offset - (took or 0.0)) / whole, WIDTH - width)), 1),
                width=round(width, 1),
                state=moment.state,
            )
        )
    return steps


def _moments(run: RunDetails) -> list[_Moment]:
    """Return the known moments in order, and the one that is awaited."""
    row, claimed_at = run.status, _claimed_at(run)
    found = _origin(run)
    if (found[-1].at or row.created_at) < run.not_before <= row.created_at:
        found.append(_Moment("Ready", run.not_before, "waited for its time"))
    found.append(_Moment("Admitted", row.created_at, "waited for room"))
    if claimed_at or (row.started_at is None and row.finished_at is None):
        found.append(_Moment("Claimed", claimed_at, "waited for a worker"))
    if row.started_at or (claimed_at and row.finished_at is None):
        # A lease runs its runs one after the other.
        wait = "waited for its turn on the worker" if run.lease_runs else "worker prepared"
        wait = wait if claimed_at else "waited for a worker"
        found.append(_Moment("Started", row.started_at, wait))
    if row.started_at or row.finished_at:
        wait = "ran" if row.started_at else "did not start"
        found.append(_Moment("Ended", row.finished_at, wait, row.state))
    return found


def _origin(run: RunDetails) -> list[_Moment]:
    """Return the moments before the gate: of the work, or of the attempt before this one."""
    earlier = [attempt for attempt in run.attempts if attempt.created_at < run.status.created_at]
    ended_at = earlier[-1].finished_at if earlier else None
    if ended_at is None:
        decided_at = min(run.decided_at or run.queued_at, run.received_at)
        sent = "sent to the dispatcher"
        return [_Moment("Decided", decided_at), _Moment("Queued", run.received_at, sent)]
    if run.status.created_at > run.queued_at > ended_at:
        return [_Moment("Queued again", run.queued_at)]
    return [_Moment(f"Attempt {earlier[-1].attempt} ended", ended_at)]


def _claimed_at(run: RunDetails) -> datetime | None:
    """Return when a worker claimed the lease; `None` if that event is not kept or not there yet."""
    for event in run.timeline:
        if event.lease == run.lease and event.accepted and event.type.startswith(_CLAIMED):
            return event.occurred_at
    return None
