"""The meaning of each state and of each move of runs and work, for the pages of states."""

from headway_decisions.runs.transitions import RunMove, RunState, WorkMove, WorkState

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
