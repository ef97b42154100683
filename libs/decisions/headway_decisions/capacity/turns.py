"""Who comes before work that waits, and when its turn comes.

Work stands in line with the lanes that want the same room: of its group before its group's limit,
of its job before its job's, of everybody before the one over everything. A lane that something
else keeps from running is passed over by the gate, and so comes before nobody.
"""

import heapq
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from headway_decisions.capacity import rates
from headway_decisions.capacity.capacity import Limits, Room
from headway_decisions.capacity.slots import Worker

# A group and a job.
Lane = tuple[str, str]


def line(
    own: Lane,
    gate: str,
    lanes: Sequence[Lane],
    limits: Limits,
    room: Room,
    fleet: Sequence[Worker],
    *,
    now: datetime,
) -> list[Lane]:
    """The lanes that stand in one line with this one before a gate."""
    return [
        lane
        for lane in lanes
        if lane == own
        or (
            _wants_the_same(own, gate, lane, limits, fleet, now)
            and not _kept_back(own, lane, limits, room, fleet, now)
        )
    ]


def estimate_start(
    *,
    ends: Sequence[datetime],
    ahead: Sequence[timedelta],
    surplus: int = 0,
    now: datetime,
) -> datetime:
    """When the slot falls free that is this work's turn, if every run takes as long as usual.

    `ends` is when those who hold the slots should be done, `ahead` how long those take who get the
    slots first, one after the other as they fall free. So many as are in `surplus` leave no slot
    behind, because a limit was lowered under them.
    """
    slots = [max(now, end) for end in ends] or [now]
    heapq.heapify(slots)
    for _ in range(min(surplus, len(slots) - 1)):
        heapq.heappop(slots)
    for duration in ahead:
        heapq.heapreplace(slots, slots[0] + duration)
    return slots[0]


def rate_turn(own: Lane, limits: Limits, *, ahead: int, now: datetime) -> datetime | None:
    """When it is this work's turn under the rates that are used up, if any is."""
    group, job = own
    turns = [
        rates.turn(limit.rate, limit.begun, ahead, now)
        for limit in (limits.group(group), limits.job(job))
        if limit.rate is not None and rates.room(limit.rate, limit.begun, now) <= 0
    ]
    return max(turns, default=None)


def _wants_the_same(
    own: Lane, gate: str, lane: Lane, limits: Limits, fleet: Sequence[Worker], now: datetime
) -> bool:
    """Whether what opens a gate for one of two lanes could be taken by the other."""
    match gate:
        case "global_cap":
            return limits.job(lane[1]).counts_globally
        case "group_cap":
            return lane[0] == own[0]
        case "job_cap" | "no_worker":
            return lane[1] == own[1]
        case "rate":
            of_group, of_job = _used_up_rates(own, limits, now)
            return (of_group and lane[0] == own[0]) or (of_job and lane[1] == own[1])
    return _share_workers(own, lane, fleet)


def _kept_back(
    own: Lane, lane: Lane, limits: Limits, room: Room, fleet: Sequence[Worker], now: datetime
) -> bool:
    """Whether a lane is closed by something that is nothing to the other."""
    return any(_is_foreign(reason, own, lane, limits, fleet, now) for reason in room.lacks(*lane))


def _is_foreign(
    reason: str, own: Lane, lane: Lane, limits: Limits, fleet: Sequence[Worker], now: datetime
) -> bool:
    match reason:
        case "global_cap":
            return not limits.job(own[1]).counts_globally
        case "group_disabled" | "group_cap":
            return lane[0] != own[0]
        case "no_worker" | "job_cap":
            return lane[1] != own[1]
        case "rate":
            of_group, of_job = _used_up_rates(lane, limits, now)
            return (of_group and lane[0] != own[0]) or (of_job and lane[1] != own[1])
    return not _share_workers(own, lane, fleet)


def _share_workers(own: Lane, lane: Lane, fleet: Sequence[Worker]) -> bool:
    return any(own[1] in worker.jobs and lane[1] in worker.jobs for worker in fleet)


def _used_up_rates(lane: Lane, limits: Limits, now: datetime) -> Iterator[bool]:
    """Whether the rate of a lane's group is used up, and that of its job."""
    for limit in (limits.group(lane[0]), limits.job(lane[1])):
        yield limit.rate is not None and rates.room(limit.rate, limit.begun, now) <= 0
