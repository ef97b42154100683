"""The events that the scheduler tells the dispatcher, as messages for the outbox."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby
from uuid import UUID

from headway.define.inputs import schema_id
from headway_contract import Event, encode, event, subjects
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

from headway_scheduler.fire.ledger import LedgerRow
from headway_scheduler.fire.manifest import Manifest
from headway_scheduler.store import SOURCE

# Work that a parent's success makes comes before what a clock makes.
DEPENDENT_BOOST = 16
_BY_PARENTS = ("success", "activation")
HIGHEST_PRIORITY = 31


def announce_work(
    queued: Iterable[tuple[Manifest, LedgerRow]], *, now: datetime
) -> list[OutboxMessage]:
    """Tell the dispatcher about new work, group by group."""
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
    """Tell the dispatcher about enqueued work and the traces it comes from, group by group."""
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
    """Ask for work to end early."""
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
    """Ask for one piece of work to end early, because somebody wants it."""
    return _message(
        request,
        message_id=f"cancel.{request.work}.{request.round}",
        group=request.group,
        now=request.requested_at,
    )


def announce_brought_forward(work: UUID, *, group: str, now: datetime) -> OutboxMessage:
    """Ask for work that waits to come first."""
    return _message(
        WorkBroughtForward(work=work, group=group, at=now),
        message_id=f"forward.{work}.{now.timestamp():.6f}",
        group=group,
        now=now,
    )


def announce_group(change: GroupChanged, *, now: datetime) -> OutboxMessage:
    """Tell the settings of a group."""
    message_id = f"group.{change.group}.{change.version}"
    return _message(change, message_id=message_id, group=change.group, now=now)


def announce_job(change: JobChanged, *, now: datetime) -> OutboxMessage:
    """Tell the limits of a job, on the subject of the group that is called like it."""
    message_id = f"job.{change.job}.{change.version}"
    return _message(change, message_id=message_id, group=change.job, now=now)


def announce_switch(change: ManifestChanged, *, now: datetime) -> OutboxMessage:
    """Tell whether the work of a manifest may run."""
    message_id = f"manifest.{change.manifest_id}.{change.version}"
    return _message(change, message_id=message_id, group=change.group, now=now)


def announce_pruned(
    manifest_id: UUID, external_id: str, group: str, *, reason: str, now: datetime
) -> OutboxMessage:
    """Tell that a manifest is going away; told again under a new id while nobody confirms it."""
    pruned = ManifestPruned(
        manifest_id=manifest_id, manifest=external_id, group=group, reason=reason, pruned_at=now
    )
    message_id = f"pruned.{manifest_id}.{now.timestamp():.0f}"
    return _message(pruned, message_id=message_id, group=group, now=now)


def _trace(manifest: Manifest, row: LedgerRow) -> str | None:
    """Every piece of work begins a trace of its own, linked to what it follows from."""
    succeeded = identity.kind_of(row.cause) == "success"
    cause = manifest.parent_traceparent if succeeded else row.traceparent
    with new_trace("decide", cause=cause, manifest=manifest.external_id, work=str(row.work)):
        return traceparent()


def _trace_enqueued(work: WorkQueued, cause: str | None) -> str | None:
    """A trace of its own, too, linked to the one of the application that enqueued it."""
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
    """By when it must have begun: counted from when it is due, or may run, or was queued."""
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
