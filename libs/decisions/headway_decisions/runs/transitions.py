"""The states of runs and work, as tables.

A run is *pending* from its admission: it holds a slot although its body has not begun. It may end
without a start, because events arrive in any order. Settled work stays settled, unless an operator
retries its dead letter: that begins the next round, with new runs.
"""

from typing import Literal

from headway_contract.work_queue import RunState as RunState
from headway_contract.work_queue import WorkState as WorkState

RunMove = Literal["started", "completed", "failed", "cancelled"]
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

# The meaning of each state and of each move.
RUN_STATES: dict[RunState, str] = {
    "pending": "ordered: it holds a slot, and its body has not begun",
    "in_progress": "its worker has reported the start",
    "completed": "the body returned",
    "failed": "the body raised, or the run was lost; the failure's kind says which",
    "cancelled": "it was cancelled, or withdrawn before it began",
}
RUN_MOVES: dict[RunMove, str] = {
    "started": "`run.started` of the process that holds the lease",
    "completed": "`run.completed` of that process",
    "failed": "`run.failed` of that process, or of the dispatcher that abandoned it",
    "cancelled": "`run.cancelled` of that process, or of the dispatcher that withdrew it",
}
WORK_STATES: dict[WorkState, str] = {
    "queued": "it waits at the gate, with a reason",
    "dispatched": "it has one live run",
    "waiting": "a run has ended, and it waits for the next attempt, with a reason",
    "settled": "it has ended; the outcome says how",
}
WORK_MOVES: dict[WorkMove, str] = {
    "admitted": "the gate found room and ordered a run",
    "completed": "its run completed",
    "cancelled": "it was cancelled, or its manifest was pruned",
    "retry": "its run failed, and is retried",
    "dead_lettered": "its run failed for the last time, and needs attention",
    "coalesced": "other work holds its manifest's slot",
    "expired": "it had not begun by its `start_by`",
    "retried": "its dead letter is retried: the next round begins",
}

TERMINAL: frozenset[RunState] = frozenset({"completed", "failed", "cancelled"})

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
    """A move that is not in the table. Nothing has changed."""


def next_run_state(state: RunState, move: RunMove) -> RunState:
    """Return the next state of a run, or raise `IllegalMove`."""
    if (state, move) not in RUN_TRANSITIONS:
        raise IllegalMove(f"a run that is {state} cannot be {move}")
    return RUN_TRANSITIONS[state, move]


def next_work_state(state: WorkState, move: WorkMove) -> WorkState:
    """Return the next state of work, or raise `IllegalMove`."""
    if (state, move) not in WORK_TRANSITIONS:
        raise IllegalMove(f"work that is {state} cannot be {move}")
    return WORK_TRANSITIONS[state, move]
