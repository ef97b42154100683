"""The life of a run, as a table.

A run is *pending* from the moment the gate admits it: it holds a slot although nobody
has begun. It is *in progress* once its worker says so, and ends in exactly one of the
three terminal states, which never change. A run may end without having been seen to
start, because events may arrive in any order, or because it was never delivered.

The second table is the life of the work that the run belongs to. Work that is settled stays
so, but for one move: a person may ask for a dead letter's work to run again. That begins its
next round, with runs of its own; the runs that failed stay as they ended.
"""

from typing import Literal, cast, get_args

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


def run_diagram() -> str:
    """The table of a run as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> pending: admitted"]
    lines += [f"    {state} --> {to}: {move}" for (state, move), to in RUN_TRANSITIONS.items()]
    lines += [f"    {state} --> [*]" for state in RUN_STATES if state in TERMINAL]
    return "\n".join(lines)


def work_diagram() -> str:
    """The table of work as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> queued: work.queued"]
    moves = cast("dict[tuple[str, str], str]", WORK_TRANSITIONS)
    lines += [f"    {state} --> {to}: {move}" for (state, move), to in moves.items()]
    lines.append("    settled --> [*]")
    return "\n".join(lines)
