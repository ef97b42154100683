"""Explain why one piece of work waits: each gate with its figures, and when its turn comes.

The gates are those of `capacity`, in the same order: the first closed one is the reason. To
estimate its turn, work stands in line with the lanes that compete for the same limit, except those
that another limit blocks, because the gate skips them.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial

from headway_contract.work_queue import GateStatus
from msgspec import Struct, structs

from headway_decisions.capacity import rates
from headway_decisions.capacity.capacity import MARGIN, Load, Room
from headway_decisions.capacity.limits import Limit, Limits
from headway_decisions.capacity.slots import Worker
from headway_decisions.wording import utc


class Waiter(Struct, frozen=True, kw_only=True):
    """Waiting work; `key_kept` if other work with its key comes first or has a smaller limit."""

    group: str
    job: str
    not_before: datetime
    start_by: datetime | None = None
    manifest: str | None = None
    manifest_disabled: bool = False
    key: str | None = None
    key_limit: int = 1
    key_active: int = 0
    key_kept: bool = False


def gates(
    waiter: Waiter, limits: Limits, load: Load, fleet: Sequence[Worker], *, now: datetime
) -> list[GateStatus]:
    """Return every gate, in the order of the checks."""
    room = Room(limits, load, fleet, now=now)
    return [
        *_conditions(waiter, limits, fleet, now),
        *_limits(waiter, limits, load, now),
        _slots(waiter, load, fleet, room),
    ]


def _conditions(
    waiter: Waiter, limits: Limits, fleet: Sequence[Worker], now: datetime
) -> Iterator[GateStatus]:
    if waiter.start_by is not None:
        until = utc(waiter.start_by)
        in_time = waiter.start_by > now
        late = f"it had to begin by {until}, and is settled as expired"
        text = f"it may begin until {until}" if in_time else late
        yield GateStatus(gate="start_by", open=in_time, text=text)
    enabled = limits.group(waiter.group).enabled
    state = "enabled" if enabled else "disabled, which holds everything in it"
    yield GateStatus(gate="group_disabled", open=enabled, text=f"group {waiter.group!r} is {state}")
    if waiter.manifest is not None:
        held = waiter.manifest_disabled
        # A paused manifest looks disabled here.
        text = "is disabled or paused, and no user requested this work"
        text = f"manifest {waiter.manifest!r} {text if held else 'does not hold this work'}"
        yield GateStatus(gate="manifest_disabled", open=not held, text=text)
    come = waiter.not_before <= now
    text = "its time has come" if come else "its time has not come"
    opens_at = None if come else waiter.not_before
    yield GateStatus(gate="not_before", open=come, text=text, opens_at=opens_at)
    serving = sum(waiter.job in worker.jobs for worker in fleet)
    text = "1 live worker serves" if serving == 1 else f"{serving} live workers serve"
    text += f" job {waiter.job!r}"
    yield GateStatus(gate="no_worker", open=serving > 0, used=serving, text=text)


def _limits(waiter: Waiter, limits: Limits, load: Load, now: datetime) -> Iterator[GateStatus]:
    group, job = limits.group(waiter.group), limits.job(waiter.job)
    of_group, of_job = load.groups.get(waiter.group, 0), load.jobs.get(waiter.job, 0)
    in_total = sum(n for name, n in load.jobs.items() if limits.job(name).counts_globally)
    if job.counts_globally:
        yield _cap("global_cap", "in total", in_total, limits.max_active)
    else:
        text = f"the global limit does not apply to job {waiter.job!r}"
        yield GateStatus(gate="global_cap", open=True, text=text)
    yield _cap("group_cap", f"in group {waiter.group!r}", of_group, group.max_active)
    yield _cap("job_cap", f"of job {waiter.job!r}", of_job, job.max_active)
    limited: tuple[tuple[str, Limit], ...] = (
        (f"group {waiter.group!r}", group),
        (f"job {waiter.job!r}", job),
    )
    for named, limit in limited:
        if limit.rate is not None:
            left = rates.room(limit.rate, limit.begun, now)
            yield GateStatus(
                gate="rate",
                open=left > 0,
                used=limit.rate.count - left,
                limit=limit.rate.count,
                text=f"{named} starts at most {rates.rate_in_words(limit.rate)}, {left} left",
                opens_at=rates.frees_at(limit.rate, limit.begun, now),
            )
    if waiter.key is not None:
        status = _cap("key", f"with key {waiter.key!r}", waiter.key_active, waiter.key_limit)
        if status.open and waiter.key_kept:
            text = f"{status.text}, but other work with this key comes first"
            status = structs.replace(status, open=False, text=text)
        yield status


def _cap(gate: str, named: str, used: int, limit: int | None) -> GateStatus:
    text = f"{used} active {named}, no limit"
    if limit is not None:
        text = f"{used} of {limit} active {named}"
    is_open = limit is None or used < limit
    return GateStatus(gate=gate, open=is_open, used=used, limit=limit, text=text)


def _slots(waiter: Waiter, load: Load, fleet: Sequence[Worker], room: Room) -> GateStatus:
    keyed, job = waiter.key is not None, waiter.job
    of_job = sum(worker.most(job) + MARGIN for worker in fleet if job in worker.jobs)
    of_all = sum(worker.slots + MARGIN for worker in fleet)
    leases = load.leases_on_fleet
    # The tighter limit: of the workers of its job, or of all workers together.
    pairs = (leases.get(job, 0), of_job), (sum(leases.values()), of_all)
    used, limit = min(pairs, key=lambda pair: pair[1] - pair[0])
    text = f"{used} of {limit} orders are with workers (a worker's slots and {MARGIN} more each)"
    is_open = room.has_order(waiter.group, job, keyed=keyed)
    if not is_open and used < limit:
        why = "with a key" if keyed else "that would take the last room of a limit"
        text += f", but no slot is idle, and work {why} gets no spare order"
    return GateStatus(gate="workers_full", open=is_open, used=used, limit=limit, text=text)


# A group and a job.
Lane = tuple[str, str]


def lanes_in_line(
    own: Lane,
    gate: str,
    lanes: Sequence[Lane],
    limits: Limits,
    room: Room,
    fleet: Sequence[Worker],
    *,
    now: datetime,
) -> list[Lane]:
    """Return the lanes in one line with this one before a gate."""
    applies = partial(_applies_to_both, limits=limits, fleet=fleet, now=now)
    line = [lane for lane in lanes if lane == own or applies(gate, own, lane, quantifier=any)]
    return [
        lane
        for lane in line
        if lane == own
        or all(applies(reason, lane, own, quantifier=all) for reason in room.lacks(*lane))
    ]


def _applies_to_both(
    reason: str,
    lane: Lane,
    other: Lane,
    *,
    limits: Limits,
    fleet: Sequence[Worker],
    now: datetime,
    quantifier: Callable[[Iterable[bool]], bool],
) -> bool:
    """Return whether the limit that `reason` names for a lane also applies to another lane."""
    # `quantifier` is `any` or `all`, for the exhausted rates of the lane.
    match reason:
        case "global_cap":
            return limits.job(other[1]).counts_globally
        case "group_disabled" | "group_cap":
            return lane[0] == other[0]
        case "no_worker" | "job_cap":
            return lane[1] == other[1]
        case "rate":
            limited = zip(lane, other, (limits.group(lane[0]), limits.job(lane[1])), strict=True)
            return quantifier(
                name == other_name
                for name, other_name, limit in limited
                if _is_exhausted(limit, now)
            )
    return any(lane[1] in worker.jobs and other[1] in worker.jobs for worker in fleet)


def estimate_start(
    *, ends: Sequence[datetime], ahead: Sequence[timedelta], surplus: int = 0, now: datetime
) -> datetime:
    """Estimate when a slot is free for this work.

    `ends` are the expected ends of the current runs, and `ahead` the durations of the work before
    this one. The first `surplus` runs free no slot, because a limit was lowered.
    """
    slots = [max(now, end) for end in ends] or [now]
    heapq.heapify(slots)
    for _ in range(min(surplus, len(slots) - 1)):
        heapq.heappop(slots)
    for duration in ahead:
        heapq.heapreplace(slots, slots[0] + duration)
    return slots[0]


def rate_turn(own: Lane, limits: Limits, *, ahead: int, now: datetime) -> datetime | None:
    """Return when the exhausted rates allow this work; `None` if there is none."""
    group, job = own
    turns = [
        rates.turn(limit.rate, limit.begun, ahead, now)
        for limit in (limits.group(group), limits.job(job))
        if limit.rate is not None and _is_exhausted(limit, now)
    ]
    return max(turns, default=None)


def _is_exhausted(limit: Limit, now: datetime) -> bool:
    return limit.rate is not None and rates.room(limit.rate, limit.begun, now) <= 0
