"""What the dispatcher tells the world, as messages for the outbox."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from headway_clock import new_id
from headway_contract import Event, EventData, encode, event, subjects
from headway_contract.lifecycle import Activation
from headway_contract.settled import (
    ActivationRequested,
    DeadLetterAcknowledged,
    DeadLetterCreated,
    DeadLetterRetried,
    PruneConfirmed,
    WorkSettled,
)
from headway_relay import OutboxMessage, bundled

from headway_dispatcher.store import SOURCE

# How much of an outcome its activations may take up. A message that the broker finds too large
# is never published, and the outcome must be; what does not fit was told by itself before.
_ACTIVATIONS_LIMIT = 512 * 1024


def messages_of(ends: Sequence[Event]) -> list[OutboxMessage]:
    """How work ended and that a person has to look, of what has just happened, group by group."""
    by_group: dict[str, list[Event]] = {}
    for one in ends:
        by_group.setdefault(one.data.group, []).append(one)
    return [
        message
        for group, events in by_group.items()
        for message in bundled(subjects.settled(group), events)
    ]


def settled_message(settled: WorkSettled) -> OutboxMessage:
    """How work ended, in a message of its own: this may be told again, with others or without."""
    [message] = messages_of([settled_event(settled)])
    return message


def settled_event(settled: WorkSettled, traceparent: str | None = None) -> Event:
    """How work ended."""
    return event(
        settled,
        id=f"settled.{settled.work}.{settled.round}",
        source=SOURCE,
        subject=settled.work,
        time=settled.settled_at,
        traceparent=traceparent,
    )


def dead_letter_event(created: DeadLetterCreated, now: datetime, traceparent: str | None) -> Event:
    """That a person has to look."""
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
    """That somebody has seen to a dead letter, which happens once."""
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
    requested: ActivationRequested, told_by: str, now: datetime, traceparent: str | None
) -> OutboxMessage:
    """That a run woke dependents; `told_by` is the run's own event, which tells it once."""
    return _message(
        requested,
        id=f"activation.{requested.run}.{told_by}",
        subject=requested.run,
        group=requested.group,
        time=now,
        traceparent=traceparent,
    )


def prune_confirmed_message(confirmed: PruneConfirmed) -> OutboxMessage:
    """That nothing is left of a manifest.

    Each time under a new id: whoever asks again has lost the last one, and the broker would
    swallow a repeat.
    """
    return _message(
        confirmed,
        id=f"pruned.{confirmed.manifest_id}.{new_id()}",
        subject=confirmed.manifest_id,
        group=confirmed.group,
        time=confirmed.confirmed_at,
    )


def fitting(activations: Sequence[Activation]) -> list[Activation]:
    """As many activations as an outcome may carry."""
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
