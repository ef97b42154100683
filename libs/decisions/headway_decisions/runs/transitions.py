"""The life of a run, as a table.

A run is *pending* from the moment the gate admits it: it holds a slot although nobody
has begun. It is *in progress* once its worker says so, and ends in exactly one of the
three terminal states, which never change. A run may end without having been seen to
start, because events may arrive in any order, or because it was never delivered.

The second table is the life of the work that the run belongs to. Work that is settled stays
so, but for one move: a person may ask for a dead letter's work to run again. That begins its
next round, with runs of its own; the runs that failed stay as they ended.
"""

from typing import Literal, get_args

RunState = Literal["pending", "in_progress", "completed", "failed", "cancelled"]
RunMove = Literal["started", "completed", "failed", "cancelled"]

WorkState = Literal["queued", "dispatched", "waiting", "settled"]
WorkMove = Literal[
    "admitted",
    "completed",
    "cancelled",
    "retry",
    "dead_lettered",
    "coalesced",
    "expired",
    "retried",
]

RUN_STATES: tuple[RunState, ...] = get_args(RunState)
WORK_STATES: tuple[WorkState, ...] = get_args(WorkState)
TERMINAL: frozenset[RunState] = frozenset({"completed", "failed", "cancelled"})
ACTIVE: frozenset[RunState] = frozenset({"pending", "in_progress"})

RUN_TRANSITIONS: dict[tuple[RunState, RunMove], RunState] = {
    ("pending", "started"): "in_progress",
    ("pending", "completed"): "completed",
    ("pending", "failed"): "failed",
    ("pending", "cancelled"): "cancelled",
    ("in_progress", "completed"): "completed",
    ("in_progress", "failed"): "failed",
    ("in_progress", "cancelled"): "cancelled",
}

WORK_TRANSITIONS: dict[tuple[WorkState, WorkMove], WorkState] = {
    ("queued", "admitted"): "dispatched",
    ("queued", "cancelled"): "settled",
    ("queued", "coalesced"): "settled",
    ("queued", "expired"): "settled",
    ("waiting", "admitted"): "dispatched",
    ("waiting", "cancelled"): "settled",
    ("waiting", "expired"): "settled",
    ("dispatched", "completed"): "settled",
    ("dispatched", "cancelled"): "settled",
    ("dispatched", "expired"): "settled",
    ("dispatched", "dead_lettered"): "settled",
    ("dispatched", "retry"): "waiting",
    ("settled", "retried"): "queued",
}


class IllegalMove(ValueError):
    """A move that the table does not know. Nothing has changed."""


def next_run_state(state: RunState, move: RunMove) -> RunState:
    """Where a run goes, or `IllegalMove`."""
    try:
        return RUN_TRANSITIONS[state, move]
    except KeyError:
        raise IllegalMove(f"a run that is {state} cannot be {move}") from None


def next_work_state(state: WorkState, move: WorkMove) -> WorkState:
    """Where work goes, or `IllegalMove`."""
    try:
        return WORK_TRANSITIONS[state, move]
    except KeyError:
        raise IllegalMove(f"work that is {state} cannot be {move}") from None


RUN_STATE_MEANINGS: dict[RunState, str] = {
    "pending": "ordered: it holds a slot, and nobody has begun",
    "in_progress": "a worker has told that its body has begun",
    "completed": "the body returned",
    "failed": "the body raised, or the run ended without its doing; the failure's kind says which",
    "cancelled": "it was asked to stop, or taken back before it began",
}

RUN_MOVE_MEANINGS: dict[RunMove, str] = {
    "started": "`run.started` of the process that holds the lease",
    "completed": "`run.completed` of that process",
    "failed": "`run.failed` of that process, or of the dispatcher that gave it up",
    "cancelled": "`run.cancelled` of that process, or of the dispatcher that took it back",
}

WORK_STATE_MEANINGS: dict[WorkState, str] = {
    "queued": "it waits for the gate, with a reason",
    "dispatched": "it has one live run",
    "waiting": "a run of it has ended, and it waits to run again, with a reason",
    "settled": "it came to its end; the outcome says how",
}

WORK_MOVE_MEANINGS: dict[WorkMove, str] = {
    "admitted": "the gate found room and ordered a run",
    "completed": "its run completed",
    "cancelled": "somebody asked for its end, or its manifest is gone",
    "retry": "its run failed, and may be tried again",
    "dead_lettered": "its run failed for the last time: a person has to look",
    "coalesced": "its manifest's slot was taken by other work",
    "expired": "it had not begun by the time after which it is no longer wanted",
    "retried": "somebody wants its dead letter tried again: its next round begins",
}
