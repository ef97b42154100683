"""Events for the scheduler and other listeners, and their messages for the outbox."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_clock import new_id
from headway_contract import Event, EventData, encode, event, subjects
from headway_contract.lifecycle import Activation
from headway_contract.reconcile import OutstandingWork
from headway_contract.settled import (
    ActivationRequested,
    DeadLetterAcknowledged,
    DeadLetterCreated,
    DeadLetterRetried,
    Outcome,
    PruneConfirmed,
    WorkSettled,
)
from headway_contract.work import WorkCancelRequested, WorkQueued
from headway_decisions.runs.folding import unite
from headway_relay import OutboxMessage, bundled

from headway_dispatcher.store import SOURCE

# The broker refuses larger messages, and an outcome must be published. Activations beyond this
# size were published by messages of their own before.
_ACTIVATIONS_LIMIT = 512 * 1024


def work_settled(
    row: Any,
    *,
    outcome: Outcome,
    reason: str,
    attempts: int,
    dead_letter: UUID | None,
    settled_at: datetime,
) -> WorkSettled:
    """Return the end of work; `row` has its columns and the activations of its runs."""
    by_run = msgspec.convert(row["activations"] or [], list[list[Activation]])
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
        activations=_within_limit(unite(activation for run in by_run for activation in run)),
        settled_at=settled_at,
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


def settled_message(settled: WorkSettled) -> OutboxMessage:
    """Return a message of its own for the end of work."""
    [message] = settled_messages([settled_event(settled)])
    return message


def settled_event(settled: WorkSettled, traceparent: str | None = None) -> Event:
    """Return the event for the end of work; publishing it again repeats its id."""
    return event(
        settled,
        id=f"settled.{settled.work}.{settled.round}",
        source=SOURCE,
        subject=settled.work,
        time=settled.settled_at,
        traceparent=traceparent,
    )


def dead_letter_event(created: DeadLetterCreated, now: datetime, traceparent: str | None) -> Event:
    """Return the event for a new dead letter."""
    letter = created.dead_letter
    return event(
        created,
        id=str(letter),
        source=SOURCE,
        subject=letter,
        time=now,
        traceparent=traceparent,
    )


def resolved_message(
    resolved: DeadLetterRetried | DeadLetterAcknowledged, traceparent: str | None = None
) -> OutboxMessage:
    """Return the message that a dead letter was resolved."""
    letter = resolved.dead_letter
    return _message(
        resolved,
        id=f"resolved.{letter}",
        subject=letter,
        group=resolved.group,
        time=resolved.resolved_at,
        traceparent=traceparent,
    )


def activation_message(
    requested: ActivationRequested, event_id: str, now: datetime, traceparent: str | None
) -> OutboxMessage:
    """Return the message that a run activates dependents, by the run's event `event_id`."""
    return _message(
        requested,
        id=f"activation.{requested.run}.{event_id}",
        subject=requested.run,
        group=requested.group,
        time=now,
        traceparent=traceparent,
    )


def prune_confirmation(tombstone: Any) -> PruneConfirmed:
    """Return the confirmation that a tombstone's row stores."""
    return PruneConfirmed(
        manifest_id=tombstone["manifest_id"],
        manifest=tombstone["manifest"],
        group=tombstone["group_name"],
        confirmed_at=tombstone["confirmed_at"],
    )


def prune_confirmed_message(confirmed: PruneConfirmed) -> OutboxMessage:
    """Return the message that nothing is left of a manifest.

    It has a new id each time: a repeated request means that the last one was lost, and the broker
    would drop a duplicate.
    """
    return _message(
        confirmed,
        id=f"pruned.{confirmed.manifest_id}.{new_id()}",
        subject=confirmed.manifest_id,
        group=confirmed.group,
        time=confirmed.confirmed_at,
    )


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


def _message(
    data: EventData,
    *,
    id: str,  # noqa: A002 - CloudEvents calls it so
    subject: UUID,
    group: str,
    time: datetime,
    traceparent: str | None = None,
) -> OutboxMessage:
    body = event(data, id=id, source=SOURCE, subject=subject, time=time, traceparent=traceparent)
    return OutboxMessage(
        message_id=id, subject=subjects.settled(group), body=encode(body), traceparent=traceparent
    )
