"""What the states and moves of the tables of transitions mean, for the page that lists them."""

from collections.abc import Mapping
from typing import Any

from headway_decisions.runs.transitions import (
    RUN_STATES,
    RUN_TRANSITIONS,
    WORK_STATES,
    WORK_TRANSITIONS,
    RunMove,
    RunState,
    WorkMove,
    WorkState,
)

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


def run_table() -> str:
    """States and arrows of a run as Markdown."""
    states = {state: RUN_STATE_MEANINGS[state] for state in RUN_STATES}
    return _states(states) + "\n\n" + _arrows(RUN_TRANSITIONS, RUN_MOVE_MEANINGS)


def work_table() -> str:
    """States and arrows of work as Markdown."""
    states = {state: WORK_STATE_MEANINGS[state] for state in WORK_STATES}
    return _states(states) + "\n\n" + _arrows(WORK_TRANSITIONS, WORK_MOVE_MEANINGS)


def _states(meanings: Mapping[Any, str]) -> str:
    rows = [f"| `{state}` | {meaning} |" for state, meaning in meanings.items()]
    return "\n".join(["| state | means |", "|---|---|", *rows])


def _arrows(transitions: Mapping[Any, Any], meanings: Mapping[Any, str]) -> str:
    rows = [
        f"| `{state}` | `{to}` | {move} | {meanings[move]} |"
        for (state, move), to in transitions.items()
    ]
    return "\n".join(["| from | to | move | when |", "|---|---|---|---|", *rows])
