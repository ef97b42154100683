"""Announce requests and settings to the dispatcher; new work is announced by its decision.

The rows have the columns of the announced event.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway_contract import EventData, encode, event, subjects
from headway_contract.fields import Rate
from headway_contract.work import (
    GroupChanged,
    JobChanged,
    ManifestChanged,
    ManifestPruned,
    WorkBroughtForward,
    WorkCancelRequested,
)
from headway_contract.work_queue import NamedWork
from headway_postgres_kit import Connection
from headway_relay import OutboxMessage

from headway_scheduler.store import OUTBOX, SOURCE, manifests, works


def announce_cancel(request: WorkCancelRequested) -> OutboxMessage:
    """Request to cancel one piece of work."""
    message_id = f"cancel.{request.work}.{request.round}"
    return _message(request, message_id, request.group, request.requested_at)


async def request_cancels(
    connection: Connection, rows: Sequence[Any], reason: str, *, now: datetime
) -> list[NamedWork]:
    """Request to cancel outstanding work, and note that at the work; returns the work."""
    found = [NamedWork(**dict(row)) for row in rows]
    messages = [announce_cancel(work.cancel_requested(reason, now)) for work in found]
    await OUTBOX.add(connection, messages)
    await connection.execute(works["note_cancel"], [work.work for work in found], reason, now)
    return found


def announce_brought_forward(work: UUID, *, group: str, now: datetime) -> OutboxMessage:
    """Request that waiting work goes first."""
    request = WorkBroughtForward(work=work, group=group, at=now)
    return _message(request, f"forward.{work}.{now.timestamp():.6f}", group, now)


def announce_group(row: Any, *, now: datetime) -> OutboxMessage:
    """Announce the settings of a group, or its deletion."""
    change = GroupChanged(**_with_rate(row))
    return _message(change, f"group.{change.group}.{change.version}", change.group, now)


def announce_job(row: Any, *, now: datetime) -> OutboxMessage:
    """Announce the limits of a job, on the subject of the group with the same name."""
    change = JobChanged(**_with_rate(row))
    return _message(change, f"job.{change.job}.{change.version}", change.job, now)


def announce_switch(row: Any, *, now: datetime) -> OutboxMessage:
    """Announce whether the work of a manifest may run."""
    change = ManifestChanged(**dict(row))
    message_id = f"manifest.{change.manifest_id}.{change.version}"
    return _message(change, message_id, change.group, now)


async def announce_switches(
    connection: Connection, locked: Sequence[UUID], *, now: datetime
) -> None:
    """Announce which of these manifests were enabled or disabled."""
    rows = await connection.fetch(manifests["switched"], locked)
    await OUTBOX.add(connection, [announce_switch(row, now=now) for row in rows])


def announce_pruned(row: Any, *, now: datetime) -> OutboxMessage:
    """Announce that a manifest is pruned; each announcement has its own message id."""
    pruned = ManifestPruned(**dict(row), pruned_at=now)
    message_id = f"pruned.{pruned.manifest_id}.{now.timestamp():.0f}"
    return _message(pruned, message_id, pruned.group, now)


def _with_rate(row: Any) -> dict[str, Any]:
    return {**row, "rate": msgspec.convert(row.get("rate"), Rate | None)}


def _message(data: EventData, message_id: str, group: str, now: datetime) -> OutboxMessage:
    body = encode(event(data, id=message_id, source=SOURCE, subject=group, time=now))
    return OutboxMessage(message_id=message_id, subject=subjects.work(group), body=body)
