"""Which orders only wait their turn, and how the runs of a lease end that is taken away.

An order that nobody claims is given up after a while, but not while everybody who could claim it
is busy: it lies ready for the slot that falls free next, and nothing is wrong.

A lease of several runs may have been lost because of one of them. Those that had begun are
counted, since one of them may be the cause; those that had not are not. Starts are told a
moment late, so either may be: retries see to it that all of them come back singly.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Literal, assert_never
from uuid import UUID

from msgspec import Struct

from headway_decisions.capacity.slots import Worker
from headway_decisions.runs.folding import Run

# Why a lease is taken away: its worker fell silent, nobody claimed it, or a run will not end.
Silence = Literal["orphaned", "undelivered", "timed_out"]
Ending = Literal["orphaned", "undelivered", "timed_out", "unbegun", "recalled"]


class Witness(Struct, frozen=True, kw_only=True):
    """How a dispatcher's own heartbeat, which travels as a worker's does, was heard of late."""

    heard_since: datetime
    last_heard_at: datetime

    def would_have_heard(self, now: datetime, *, throughout: timedelta, gap: timedelta) -> bool:
        """Whether somebody who spoke in that time would have been heard.

        `gap` is how long ago the last heartbeat may be.
        """
        return now - self.last_heard_at <= gap and now - self.heard_since >= throughout


def jobs_that_wait_their_turn(fleet: Iterable[Worker]) -> set[str]:
    """Jobs that somebody serves, and all who do are full."""
    full: dict[str, bool] = {}
    for worker in fleet:
        for job in worker.jobs:
            full[job] = full.get(job, True) and worker.is_full(job)
    return {job for job, is_full in full.items() if is_full}


def abandoned(worker: str | None, *, heard: bool, warning: str | None, seconds: float) -> str:
    """Say why a lease is taken from its worker.

    `heard` says that the worker's heartbeats came all the same, and `warning` what was wrong with
    a message of it.
    """
    how = "was heard of but did not name the lease" if heard else "was not heard of"
    silence = f"worker {worker} {how} for {seconds:g} s"
    return f"{silence}; before that {warning}" if warning else silence


class LiveRun(Struct, frozen=True, kw_only=True):
    """A run of the lease that has not ended."""

    run: UUID
    begun: bool
    overdue: bool = False


def endings(why: Silence, live: Sequence[LiveRun], *, shared: bool) -> dict[UUID, Ending]:
    """The kind of failure of each run; `shared` says that the lease was given for several.

    The one run of a lease is its own cause, whether it was seen to begin or not.
    """
    return {one.run: _ending(why, one, shared=shared) for one in live}


def _ending(why: Silence, run: LiveRun, *, shared: bool) -> Ending:
    match why:
        case "undelivered":
            return "undelivered"
        case "orphaned":
            return "unbegun" if shared and not run.begun else "orphaned"
        case "timed_out":
            return "timed_out" if run.overdue or not shared else "recalled"
        case _:
            assert_never(why)


def expired_before_start(start_by: datetime | None, run: Run, *, cancel_requested: bool) -> bool:
    """Whether a run was taken back because its work had to begin by then.

    Nobody asked for its end, nobody had begun with it, and its time was over.
    """
    return (
        run.state == "cancelled"
        and run.started_at is None
        and run.finished_at is not None
        and not cancel_requested
        and start_by is not None
        and start_by <= run.finished_at
    )
