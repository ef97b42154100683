"""The dispatcher's events: messages for the outbox, and records for history.

A pass collects its records and appends them once, in its transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal
from uuid import UUID

import msgspec
from headway_clock import new_id
from headway_contract import Event, encode, event, subjects
from headway_contract.lifecycle import Activation
from headway_contract.orders import OrderedRun, RunDispatched
from headway_contract.reconcile import OutstandingWork
from headway_contract.settled import (
    DeadLetterCreated,
    Outcome,
    PruneConfirmed,
    WorksCompleted,
    WorkSettled,
)
from headway_contract.work import (
    ManifestPruned,
    WorkBroughtForward,
    WorkCancelRequested,
    WorkQueued,
)
from headway_decisions.capacity.packing import HAND_BACK_SECONDS
from headway_decisions.retries.retries import Retry
from headway_decisions.runs.folding import unite
from headway_history import Record
from headway_history.events import FORGOTTEN, RUN_IN_DOUBT, WORK_WAITING
from headway_relay import OutboxMessage, bundled

from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import SOURCE

# The broker refuses larger messages, and an outcome must be published. Activations beyond this
# size were published by messages of their own before.
_ACTIVATIONS_LIMIT = 512 * 1024
# Most completed works in one event.
_MOST_COMPLETED = 500

# Makes an event that the dispatcher publishes; publishing it again repeats its id.
own_event = partial(event, source=SOURCE)


def order_of(settings: DispatcherSettings, runs: list[OrderedRun], **lease: Any) -> RunDispatched:
    """Return the order of a lease; `lease` has its id, token, job and behaviour on lost contact."""
    return RunDispatched(
        heartbeat_seconds=settings.heartbeat_seconds,
        orphan_timeout_seconds=settings.orphan_timeout_seconds,
        renew_seconds=settings.renew_seconds,
        hand_back_seconds=HAND_BACK_SECONDS if len(runs) > 1 else None,
        runs=runs,
        **lease,
    )


def outbox_message(published: Event) -> OutboxMessage:
    """Return a message with a single event, for the scheduler and other subscribers."""
    return OutboxMessage(
        message_id=published.id,
        subject=subjects.settled(published.data.group),
        body=encode(published),
        traceparent=published.traceparent,
    )


def settled_messages(events: Iterable[Event]) -> list[OutboxMessage]:
    """Bundle events of one transaction into messages, by group."""
    by_group: dict[str, list[Event]] = {}
    for settled in events:
        by_group.setdefault(settled.data.group, []).append(settled)
    return [
        message
        for group, members in by_group.items()
        for message in bundled(subjects.settled(group), members)
    ]


def work_settled(
    row: Any,
    *,
    outcome: Outcome,
    reason: str,
    attempts: int,
    dead_letter: UUID | None,
    settled_at: datetime,
    activations: Sequence[Activation] | None = None,
) -> WorkSettled:
    """Return the end of work; `row` has its columns and, unless given, its runs' activations."""
    if activations is None:
        by_run = msgspec.convert(row["activations"] or [], list[list[Activation]])
        activations = unite(activation for run in by_run for activation in run)
    return WorkSettled(
        work=row["id"],
        round=row["round"],
        manifest_id=row["manifest_id"],
        manifest=row["manifest"],
        group=row["group_name"],
        outcome=outcome,
        reason=reason,
        run=row["run_id"],
        runs=row["runs"],
        attempts=attempts,
        dead_letter=dead_letter,
        activations=_within_limit(activations) if activations else [],
        settled_at=settled_at,
    )


def works_completed(
    group: str, works: Sequence[tuple[Any, str | None]], settled_at: datetime
) -> Iterator[Event]:
    """Yield events for completed work of a group; `works` has rows with their traces."""
    for at in range(0, len(works), _MOST_COMPLETED):
        rows, traces = zip(*works[at : at + _MOST_COMPLETED], strict=True)
        completed = WorksCompleted(
            group=group,
            work=[row["id"] for row in rows],
            round=[row["round"] for row in rows],
            manifest_id=[row["manifest_id"] for row in rows],
            manifest=[row["manifest"] for row in rows],
            run=[row["run_id"] for row in rows],
            runs=[row["runs"] for row in rows],
            attempts=[row["attempts"] for row in rows],
            settled_at=settled_at,
            traceparents=list(traces) if any(traces) else [],
        )
        first, context = rows[0], next(filter(None, traces), None)
        id_ = f"completed.{first['id']}.{first['round']}"
        yield own_event(
            completed, id=id_, subject=first["id"], time=settled_at, traceparent=context
        )


def settled_without_run(
    work: WorkQueued | WorkCancelRequested | OutstandingWork,
    outcome: Outcome,
    reason: str,
    now: datetime,
) -> WorkSettled:
    """Return the end of work that never ran; its group is unknown if its manifest is pruned."""
    return WorkSettled(
        work=work.work,
        round=work.round,
        manifest_id=work.manifest_id,
        manifest=None if isinstance(work, OutstandingWork) else work.manifest,
        group="pruned" if isinstance(work, OutstandingWork) else work.group,
        outcome=outcome,
        reason=reason,
        runs=0,
        attempts=0,
        settled_at=now,
    )


def settled_event(settled: WorkSettled, traceparent: str | None = None) -> Event:
    """Return the event for the end of work."""
    return own_event(
        settled,
        id=f"settled.{settled.work}.{settled.round}",
        subject=settled.work,
        time=settled.settled_at,
        traceparent=traceparent,
    )


def prune_confirmed_message(confirmed: PruneConfirmed) -> OutboxMessage:
    """Return the message that nothing is left of a manifest.

    It has a new id each time: a repeated request means that the last one was lost, and the broker
    would drop a duplicate.
    """
    manifest, at = confirmed.manifest_id, confirmed.confirmed_at
    id_ = f"pruned.{manifest}.{new_id()}"
    return outbox_message(own_event(confirmed, id=id_, subject=manifest, time=at))


def _within_limit(activations: Sequence[Activation]) -> list[Activation]:
    """Return as many activations as an outcome may carry."""
    room = _ACTIVATIONS_LIMIT
    kept = []
    for activation in activations:
        room -= len(msgspec.json.encode(activation))
        if room < 0:
            break
        kept.append(activation)
    return kept


def queued_record(arrived: Event, row: dict[str, Any], now: datetime) -> Record:
    """Record that work arrived; `row` has everything known about it."""
    source, work = arrived.source, arrived.data.work
    return _record(WorkQueued.type, arrived.id, arrived.subject, now, row, source=source, work=work)


def waiting_record(
    row: Any, retry: Retry, *, begun: bool, traceparent: str | None, now: datetime
) -> Record:
    """Record a retry after a failed run, whose body had `begun`; `row` is the old one."""
    data = {
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
    }
    return _record(WORK_WAITING, f"waiting.{row['run_id']}", row["id"], now, data)


def settled_record(end: WorkSettled) -> Record:
    """Record the end of work, without activations, which the events of its runs have."""
    data = msgspec.to_builtins(end)
    del data["activations"]
    return _record(end.type, f"settled.{end.work}.{end.round}", end.work, end.settled_at, data)


def letter_record(created: DeadLetterCreated, content: dict[str, Any], now: datetime) -> Record:
    """Record a dead letter with its input and failure."""
    data = msgspec.to_builtins(created) | content
    return _record(created.type, str(created.dead_letter), created.work, now, data)


def cancel_record(
    request: WorkCancelRequested,
    *,
    round: int,  # noqa: A002 - the column's name
    now: datetime,
    unknown: bool = False,
) -> Record:
    """Record a cancel request; `unknown` if the work has not arrived."""
    data = msgspec.to_builtins(request) | {"round": round, "unknown": unknown}
    return _record(request.type, f"cancel.{request.work}.{round}", request.work, now, data)


def forward_record(row: Any, now: datetime) -> Record:
    """Record that work was brought forward; `row` is the new one."""
    event_id = f"forward.{row['work']}.{row['round']}.{row['runs']}"
    return _record(WorkBroughtForward.type, event_id, row["work"], now, dict(row))


def doubt_record(row: Any, now: datetime) -> Record:
    """Record that a run may have begun unseen; `row` is the new one, with counters."""
    run, event_id = row["run"], f"doubt.{row['run']}.{row['reissued']}.{row['begun_elsewhere']}"
    data = {name: row[name] for name in ("work", "run", "reissued", "begun_elsewhere")}
    return _record(RUN_IN_DOUBT, event_id, run, now, data, run=run, lease=row["lease"])


def prune_record(prune: ManifestPruned | PruneConfirmed, at: datetime) -> Record:
    """Record the tombstone of a manifest, or that nothing is left of the manifest."""
    kind = "pruned" if isinstance(prune, ManifestPruned) else "confirmed"
    manifest = prune.manifest_id
    return _record(prune.type, f"{kind}.{manifest}", manifest, at, msgspec.to_builtins(prune))


def deleted_record(what: Literal["settled_before", "resolved_before"], at: datetime) -> Record:
    """Record that retention deleted old work or old dead letters."""
    return _record(FORGOTTEN, f"forgotten.{at.isoformat()}", "dispatcher", at, {what: at})


def operator_record(
    type: str,  # noqa: A002 - CloudEvents calls it so
    subject: object,
    actor: str,
    at: datetime,
    data: dict[str, Any],
) -> Record:
    """Record the request of a person."""
    source = f"operator/{actor or 'unknown'}"
    return _record(type, str(new_id()), subject, at, data, source=source)


def _record(
    type_: str, event_id: str, subject: object, at: datetime, data: Any, **fields: Any
) -> Record:
    fields = {"source": SOURCE, **fields}
    return Record(
        event_id=event_id, type=type_, subject=str(subject), occurred_at=at, data=data, **fields
    )
