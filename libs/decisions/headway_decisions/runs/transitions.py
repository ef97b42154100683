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
