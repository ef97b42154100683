"""What history keeps of the dispatcher's own decisions.

A pass collects the records of all that it decides and appends them once, in its transaction.
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


def taken_in(queued: Event, row: dict[str, Any], now: datetime) -> Record:
    """Work that is ours from now on; `row` is all that we know of it."""
    return Record(
        event_id=queued.id,
        type=WorkQueued.type,
        subject=queued.subject,
        source=queued.source,
        occurred_at=now,
        data=row,
        work=queued.data.work,
    )


def turned_away(queued: Event, refusal: str, now: datetime) -> Record:
    """Work that finds no home here."""
    return Record(
        event_id=queued.id,
        type=WorkQueued.type,
        subject=queued.subject,
        source=queued.source,
        occurred_at=now,
        data=msgspec.to_builtins(queued.data),
        accepted=False,
        refusal=refusal,
        work=queued.data.work,
    )


def waiting(
    row: Any, retry: Retry, *, begun: bool, traceparent: str | None, now: datetime
) -> Record:
    """Work that runs again after a failed run, whose body had `begun`; `row` as it is before."""
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
            "alone": retry.alone,
            "begun": begun,
            "traceparent": traceparent,
        },
    )


def settled(told: WorkSettled) -> Record:
    """Work that came to its end. What it woke stands in the events of its runs."""
    data = msgspec.to_builtins(told)
    del data["activations"]
    return _own(
        WorkSettled.type, f"settled.{told.work}.{told.round}", told.work, told.settled_at, data
    )


def letter(created: DeadLetterCreated, *, input: Any, failure: Any, now: datetime) -> Record:  # noqa: A002 - the column's name
    """A dead letter, with all that its row holds."""
    data = msgspec.to_builtins(created) | {"input": input, "failure": failure}
    return _own(created.type, str(created.dead_letter), created.work, now, data)


def cancel_requested(
    request: WorkCancelRequested,
    *,
    round: int,  # noqa: A002 - the column's name
    now: datetime,
    unknown: bool = False,
) -> Record:
    """Work that is to end early; `unknown` if it has not come yet."""
    data = msgspec.to_builtins(request) | {"round": round, "unknown": unknown}
    return _own(request.type, f"cancel.{request.work}.{round}", request.work, now, data)


def brought_forward(rows: Sequence[Any], now: datetime) -> list[Record]:
    """Work that was put first; rows as they are after it."""
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
    """Runs that may have begun unseen, with how often by now; rows as they are after it."""
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


def pruned(told: ManifestPruned, now: datetime) -> Record:
    """A manifest that goes away."""
    return _own(
        told.type, f"pruned.{told.manifest_id}", told.manifest_id, now, msgspec.to_builtins(told)
    )


def prune_confirmed(told: PruneConfirmed) -> Record:
    """A manifest of which nothing is left."""
    return _own(
        told.type,
        f"confirmed.{told.manifest_id}",
        told.manifest_id,
        told.confirmed_at,
        msgspec.to_builtins(told),
    )


def work_forgotten(settled_before: datetime) -> Record:
    """The clean-up has deleted work that was settled before."""
    return _forgotten({"settled_before": settled_before}, settled_before)


def letters_forgotten(resolved_before: datetime) -> Record:
    """The clean-up has deleted dead letters that were seen to before."""
    return _forgotten({"resolved_before": resolved_before}, resolved_before)


def _forgotten(data: dict[str, datetime], before: datetime) -> Record:
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
