"""One-shots whose one time has come: only another time lets them fire again."""

from datetime import datetime
from typing import Any

import msgspec
from headway_decisions.timing import timing
from headway_decisions.timing.timing import Timing

from headway_scheduler.explain.preview import first_ahead


def has_come(row: Any, now: datetime) -> bool:
    """Whether the time of a one-shot has been decided, or will be skipped once it is enabled."""
    if row["timing"]["cadence"]["type"] != "once":
        return False
    if row["enabled"]:
        # What is overdue is the tick's to decide, or that of whoever ends a pause.
        return row["next_due_at"] is None
    return first_ahead(row, msgspec.convert(row["timing"], Timing), now) is None


def is_spent(row: Any, now: datetime) -> bool:
    """Whether a one-shot has had its shot, and nothing of it is under way or waits."""
    return has_come(row, now) and not row["outstanding"] and not row["owed"]


def remedy(row: Any) -> str:
    """What lets a one-shot run that has had its shot."""
    if row["blocked_by"] is not None:
        return f"give it another time, or retry its dead letter {row['blocked_by']}"
    return f"give it another time, or run it with 'headway trigger {row['external_id']}'"


def refusal(row: Any) -> str:
    """Why a one-shot that is spent is not enabled."""
    named = timing.describe(msgspec.convert(row["timing"], Timing))
    return (
        f"manifest {row['external_id']!r} is a one-shot, {named}, and its time has passed: "
        f"{remedy(row)}"
    )
