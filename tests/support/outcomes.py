"""Outcomes of work, as the dispatcher publishes them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import uuid4

from headway_contract.settled import WorksCompleted, WorkSettled

_COLUMNS = ("work", "round", "manifest_id", "manifest", "run", "runs", "attempts")


def completed(rows: Iterable[Any], at: datetime) -> list[WorkSettled]:
    """The completion of outstanding work, by its rows."""
    return [
        WorkSettled(
            work=row["id"],
            round=row["round"],
            manifest_id=row["manifest_id"],
            group="any",
            outcome="completed",
            run=uuid4(),
            runs=1,
            attempts=1,
            settled_at=at,
        )
        for row in rows
    ]


def packed_event(
    outcomes: Sequence[WorkSettled], traceparents: Sequence[str | None] = ()
) -> WorksCompleted:
    """One event for completed work that was settled at the same time."""
    return WorksCompleted(
        group=outcomes[0].group,
        settled_at=outcomes[0].settled_at,
        traceparents=list(traceparents),
        **{name: [getattr(outcome, name) for outcome in outcomes] for name in _COLUMNS},
    )
