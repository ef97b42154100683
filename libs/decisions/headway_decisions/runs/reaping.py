"""Decide how the runs of a lost lease end.

An unclaimed order expires after a while, but not while every worker that could claim it is busy.
A lease of several runs may have been lost because of one of them: the runs that had begun count as
attempts, the others do not, and all of them are retried in leases of their own.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from msgspec import Struct

from headway_decisions.capacity.slots import Worker
from headway_decisions.runs.folding import Run

# Why a lease is taken away: its worker is silent, it was not claimed, or a run does not end.
Silence = Literal["orphaned", "undelivered", "timed_out"]
Ending = Literal["orphaned", "undelivered", "timed_out", "unbegun", "recalled"]


class Witness(Struct, frozen=True, kw_only=True):
    """The dispatcher's own heartbeats, which prove that it receives those of workers."""

    heard_since: datetime
    last_heard_at: datetime

    def would_have_heard(self, now: datetime, *, throughout: timedelta, gap: timedelta) -> bool:
        """Return whether heartbeats would have arrived throughout a time, within `gap` of now."""
        return now - self.last_heard_at <= gap and now - self.heard_since >= throughout


def jobs_that_wait_their_turn(fleet: Iterable[Worker]) -> set[str]:
    """Return the jobs whose workers are all full."""
    full: dict[str, bool] = {}
    for worker in fleet:
        for job in worker.jobs:
            full[job] = full.get(job, True) and worker.is_full(job)
    return {job for job, is_full in full.items() if is_full}


def abandoned(worker: str | None, *, heard: bool, warning: str | None, seconds: float) -> str:
    """Describe why a lease is taken; `heard` if heartbeats arrived, `warning` of its messages."""
    how = "sent heartbeats without the lease" if heard else "sent no heartbeat"
    silence = f"worker {worker} {how} for {seconds:g} s"
    return f"{silence}; before that {warning}" if warning else silence


class LiveRun(Struct, frozen=True, kw_only=True):
    """A run of a lease that has not ended."""

    run: UUID
    begun: bool
    overdue: bool = False


def endings(why: Silence, live: Sequence[LiveRun], *, shared: bool) -> dict[UUID, Ending]:
    """Return the kind of failure of each run; in a lease that is not `shared`, it is the cause."""
    kinds: dict[UUID, Ending] = {}
    for run in live:
        kind: Ending = why
        if why == "orphaned" and shared and not run.begun:
            kind = "unbegun"
        elif why == "timed_out" and shared and not run.overdue:
            kind = "recalled"
        kinds[run.run] = kind
    return kinds


def expired_before_start(start_by: datetime | None, run: Run, *, cancel_requested: bool) -> bool:
    """Return whether a run was withdrawn because its `start_by` had passed."""
    return (
        run.state == "cancelled"
        and run.started_at is None
        and run.finished_at is not None
        and not cancel_requested
        and start_by is not None
        and start_by <= run.finished_at
    )
