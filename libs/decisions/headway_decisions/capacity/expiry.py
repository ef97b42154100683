"""Whether work came too late to begin."""

from datetime import datetime

from headway_decisions.runs.folding import Run


def came_too_late(start_by: datetime | None, run: Run, *, cancel_requested: bool) -> bool:
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
