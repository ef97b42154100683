"""History records of the dispatcher's own decisions.

A pass collects its records and appends them once, in its transaction.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import Event
from headway_contract.settled import DeadLetterCreated, PruneConfirmed, WorkSettled
from headway_contract.work import (
    ManifestPruned,
    WorkBroughtForward,
    WorkCancelRequested,
    WorkQueued,
)
from headway_decisions.retries.retries import Retry
from headway_history import Record
from headway_history.events import FORGOTTEN, RUN_IN_DOUBT, WORK_WAITING

from headway_dispatcher.store import SOURCE


def queued(event: Event, row: dict[str, Any], now: datetime) -> Record:
    """Record that work arrived; `row` has everything known about it."""
    return Record(
        event_id=event.id,
        type=WorkQueued.type,
        subject=event.subject,
        source=event.source,
        occurred_at=now,
        data=row,
        work=event.data.work,
    )


def refused(event: Event, refusal: str, now: datetime) -> Record:
    """Record that work was refused."""
    return Record(
        event_id=event.id,
        type=WorkQueued.type,
        subject=event.subject,
        source=event.source,
        occurred_at=now,
        data=msgspec.to_builtins(event.data),
        accepted=False,
        refusal=refusal,
        work=event.data.work,
    )


def waiting(
    row: Any, retry: Retry, *, begun: bool, traceparent: str | None, now: datetime
) -> Record:
    """Record a retry after a failed run, whose body had `begun`; `row` is the old one."""
    return _own(
        WORK_WAITING,
        f"waiting.{row['run_id']}",
        row["id"],
        now,
        {
            "work": row["id"],
            "round": row["round"],
            "run": row["run_id"],
            "runs": row["runs"],
            "attempts": retry.attempts,
            "not_before": retry.at,
            "reason": retry.reason,
            "exclusive_lease": retry.exclusive_lease,
            "begun": begun,
            "traceparent": traceparent,
        },
    )


def settled(end: WorkSettled) -> Record:
    """Record the end of work, without activations, which the events of its runs have."""
    data = msgspec.to_builtins(end)
    del data["activations"]
    return _own(WorkSettled.type, f"settled.{end.work}.{end.round}", end.work, end.settled_at, data)


def letter(created: DeadLetterCreated, *, input: Any, failure: Any, now: datetime) -> Record:  # noqa: A002 - the column's name
    """Record a dead letter with everything in its row."""
    data = msgspec.to_builtins(created) | {"input": input, "failure": failure}
    return _own(created.type, str(created.dead_letter), created.work, now, data)


def cancel_requested(
    request: WorkCancelRequested,
    *,
    round: int,  # noqa: A002 - the column's name
    now: datetime,
    unknown: bool = False,
) -> Record:
    """Record a cancel request; `unknown` if the work has not arrived."""
    data = msgspec.to_builtins(request) | {"round": round, "unknown": unknown}
    return _own(request.type, f"cancel.{request.work}.{round}", request.work, now, data)


def brought_forward(rows: Sequence[Any], now: datetime) -> list[Record]:
    """Record that work was brought forward; `rows` are the new ones."""
    return [
        _own(
            WorkBroughtForward.type,
            f"forward.{row['id']}.{row['round']}.{row['runs']}",
            row["id"],
            now,
            {
                "work": row["id"],
                "round": row["round"],
                "runs": row["runs"],
                "rank": row["rank"],
                "not_before": row["not_before"],
            },
        )
        for row in rows
    ]


def in_doubt(rows: Sequence[Any], now: datetime) -> list[Record]:
    """Record runs that may have begun unseen; `rows` are the new ones, with counters."""
    return [
        Record(
            event_id=f"doubt.{row['run_id']}.{row['reissued']}.{row['begun_elsewhere']}",
            type=RUN_IN_DOUBT,
            subject=str(row["run_id"]),
            source=SOURCE,
            occurred_at=now,
            data={
                "work": row["work_id"],
                "run": row["run_id"],
                "reissued": row["reissued"],
                "begun_elsewhere": row["begun_elsewhere"],
            },
            work=row["work_id"],
            run=row["run_id"],
            lease=row["lease_id"],
        )
        for row in rows
    ]


def pruned(prune: ManifestPruned, now: datetime) -> Record:
    """Record the tombstone of a manifest."""
    return _own(
        prune.type,
        f"pruned.{prune.manifest_id}",
        prune.manifest_id,
        now,
        msgspec.to_builtins(prune),
    )


def prune_confirmed(confirmed: PruneConfirmed) -> Record:
    """Record that nothing is left of a manifest."""
    return _own(
        confirmed.type,
        f"confirmed.{confirmed.manifest_id}",
        confirmed.manifest_id,
        confirmed.confirmed_at,
        msgspec.to_builtins(confirmed),
    )


def work_deleted(settled_before: datetime) -> Record:
    """Record that retention deleted work settled before a time."""
    return _deleted({"settled_before": settled_before}, settled_before)


def letters_deleted(resolved_before: datetime) -> Record:
    """Record that retention deleted dead letters resolved before a time."""
    return _deleted({"resolved_before": resolved_before}, resolved_before)


def _deleted(data: dict[str, datetime], before: datetime) -> Record:
    return Record(
        event_id=f"forgotten.{before.isoformat()}",
        type=FORGOTTEN,
        subject="dispatcher",
        source=SOURCE,
        occurred_at=before,
        data=data,
    )


def _own(type: str, event_id: str, subject: UUID, at: datetime, data: Any) -> Record:  # noqa: A002 - CloudEvents calls it so
    return Record(
        event_id=event_id,
        type=type,
        subject=str(subject),
        source=SOURCE,
        occurred_at=at,
        data=data,
    )
