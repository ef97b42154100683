"""Build the events from the scheduler to the dispatcher, as messages for the outbox."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any
from uuid import UUID

import msgspec
from headway.define.inputs import schema_id
from headway_contract import Event, encode, event, subjects
from headway_contract.fields import Rate
from headway_contract.work import (
    GroupChanged,
    JobChanged,
    ManifestChanged,
    ManifestPruned,
    WorkBroughtForward,
    WorkCancelRequested,
    WorkQueued,
)
from headway_decisions.firing import identity
from headway_relay import OutboxMessage, bundled
from headway_tracing import is_recording, new_trace, traceparent

from headway_scheduler.fire.manifest import LedgerRow, Manifest
from headway_scheduler.store import SOURCE

# Work that follows a parent goes before scheduled work.
DEPENDENT_BOOST = 16
_BY_PARENTS = ("success", "activation")
HIGHEST_PRIORITY = 31


def announce_work(
    queued: Iterable[tuple[Manifest, LedgerRow]], *, now: datetime
) -> list[OutboxMessage]:
    """Announce new work of manifests, bundled by group."""
    ordered = sorted(queued, key=lambda pair: pair[0].group)
    traced = is_recording()
    return [
        message
        for group, members in groupby(ordered, key=lambda pair: pair[0].group)
        for message in bundled(
            subjects.work(group),
            [
                _queued_event(manifest, row, now, _trace(manifest, row) if traced else None)
                for manifest, row in members
            ],
        )
    ]


def announce_enqueued(
    queued: Iterable[tuple[WorkQueued, str | None]], *, now: datetime
) -> list[OutboxMessage]:
    """Announce enqueued work, each with the trace of its application, bundled by group."""
    ordered = sorted(queued, key=lambda pair: pair[0].group)
    traced = is_recording()
    return [
        message
        for group, members in groupby(ordered, key=lambda pair: pair[0].group)
        for message in bundled(
            subjects.work(group),
            [
                _work_event(work, now, _trace_enqueued(work, cause) if traced else None)
                for work, cause in members
            ],
        )
    ]


def announce_cancels(
    works: Iterable[tuple[Manifest, UUID, int]], *, reason: str, now: datetime
) -> list[OutboxMessage]:
    """Request to cancel outstanding work of manifests."""
    return [
        _message(
            WorkCancelRequested(
                work=work,
                round=round_number,
                manifest_id=manifest.view.id,
                manifest=manifest.external_id,
                group=manifest.group,
                reason=reason,
                requested_at=now,
            ),
            message_id=f"cancel.{work}.{round_number}",
            group=manifest.group,
            now=now,
        )
        for manifest, work, round_number in works
    ]


def announce_cancel(request: WorkCancelRequested) -> OutboxMessage:
    """Request to cancel one piece of work."""
    return _message(
        request,
        message_id=f"cancel.{request.work}.{request.round}",
        group=request.group,
        now=request.requested_at,
    )


def announce_brought_forward(work: UUID, *, group: str, now: datetime) -> OutboxMessage:
    """Request that waiting work goes first."""
    return _message(
        WorkBroughtForward(work=work, group=group, at=now),
        message_id=f"forward.{work}.{now.timestamp():.6f}",
        group=group,
        now=now,
    )


def announce_group(row: Any, *, now: datetime, deleted: bool = False) -> OutboxMessage:
    """Announce the settings of a group, or its deletion."""
    name, version = row["name"], row["version"]
    change = GroupChanged(group=name, version=version, deleted=True)
    if not deleted:
        change = GroupChanged(
            group=name,
            version=version,
            max_active=row["max_active"],
            priority=row["priority"],
            enabled=row["enabled"],
            rate=msgspec.convert(row["rate"], Rate | None),
        )
    return _message(change, message_id=f"group.{name}.{version}", group=name, now=now)


def announce_job(row: Any, *, now: datetime) -> OutboxMessage:
    """Announce the limits of a job, on the subject of the group with the same name."""
    change = JobChanged(
        job=row["name"],
        version=row["version"],
        max_active=row["max_active"],
        rate=msgspec.convert(row["rate"], Rate | None),
        counts_globally=row["counts_globally"],
        batch=row["batch"],
        retired=row["retired_at"] is not None,
    )
    message_id = f"job.{change.job}.{change.version}"
    return _message(change, message_id=message_id, group=change.job, now=now)


def announce_switch(row: Any, *, now: datetime) -> OutboxMessage:
    """Announce whether the work of a manifest may run."""
    change = ManifestChanged(
        manifest_id=row["id"],
        manifest=row["external_id"],
        group=row["group_name"],
        version=row["version"],
        enabled=row["enabled"],
    )
    message_id = f"manifest.{change.manifest_id}.{change.version}"
    return _message(change, message_id=message_id, group=change.group, now=now)


def announce_pruned(row: Any, *, reason: str, now: datetime) -> OutboxMessage:
    """Announce that a manifest is pruned; each announcement has its own message id."""
    pruned = ManifestPruned(
        manifest_id=row["id"],
        manifest=row["external_id"],
        group=row["group_name"],
        reason=reason,
        pruned_at=now,
    )
    message_id = f"pruned.{pruned.manifest_id}.{now.timestamp():.0f}"
    return _message(pruned, message_id=message_id, group=pruned.group, now=now)


def _trace(manifest: Manifest, row: LedgerRow) -> str | None:
    """Start a trace for a piece of work, linked to its cause."""
    succeeded = identity.kind_of(row.cause) == "success"
    cause = manifest.parent_traceparent if succeeded else row.traceparent
    with new_trace("decide", cause=cause, manifest=manifest.external_id, work=str(row.work)):
        return traceparent()


def _trace_enqueued(work: WorkQueued, cause: str | None) -> str | None:
    """Start a trace for enqueued work, linked to the trace of its application."""
    with new_trace("decide", cause=cause, job=work.job, work=str(work.work)):
        return traceparent()


def _queued_event(manifest: Manifest, row: LedgerRow, now: datetime, context: str | None) -> Event:
    assert row.work is not None  # noqa: S101 - only queued decisions are announced
    queued = WorkQueued(
        work=row.work,
        manifest_id=row.manifest,
        manifest=manifest.external_id,
        group=manifest.group,
        job=manifest.job,
        input=row.input,
        input_schema=schema_id(manifest.input_schema),
        cause=row.cause,
        due_at=identity.occurrence_of(row.cause),
        queued_at=now,
        slot=row.slot,
        not_before=row.not_before,
        terms=manifest.terms,
        priority=_priority(manifest, row),
        start_by=_start_by(manifest, row, now),
        concurrency_key=row.concurrency_key,
        explicit=row.explicit,
    )
    return _work_event(queued, now, context)


def _work_event(queued: WorkQueued, now: datetime, context: str | None) -> Event:
    return event(
        queued,
        id=f"{queued.work}.{queued.round}",
        source=SOURCE,
        subject=queued.work,
        time=now,
        traceparent=context,
    )


def _start_by(manifest: Manifest, row: LedgerRow, now: datetime) -> datetime | None:
    """Compute the start deadline, from when the work is due, may run or was queued."""
    within = row.start_within_seconds or manifest.terms.start_within_seconds
    if within is None:
        return None
    return (row.due_at or row.not_before or now) + timedelta(seconds=within)


def _priority(manifest: Manifest, row: LedgerRow) -> int:
    boost = DEPENDENT_BOOST if identity.kind_of(row.cause) in _BY_PARENTS else 0
    stated = manifest.terms.priority if row.priority is None else row.priority
    return min(stated + boost, HIGHEST_PRIORITY)


def _message(
    data: WorkCancelRequested
    | WorkBroughtForward
    | GroupChanged
    | JobChanged
    | ManifestChanged
    | ManifestPruned,
    *,
    message_id: str,
    group: str,
    now: datetime,
) -> OutboxMessage:
    body = encode(event(data, id=message_id, source=SOURCE, subject=group, time=now))
    return OutboxMessage(message_id=message_id, subject=subjects.work(group), body=body)
