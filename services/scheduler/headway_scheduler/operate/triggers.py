"""Trigger a manifest beside its schedule."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_clock import new_id
from headway_contract.manifests import (
    TriggerAnswer,
    TriggerRequest,
)
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.firing import due, identity
from headway_decisions.firing.manifest_state import STILL_OUTSTANDING, Owed, Verdict, has_room
from headway_decisions.wording import utc
from headway_errors import Conflict, Invalid
from headway_postgres_kit import Connection, StatementBatch, note
from headway_relay import OutboxMessage, stamped
from msgspec import UNSET, Struct, structs

from headway_scheduler.declare.checks import retired_message
from headway_scheduler.fire import decide, tick
from headway_scheduler.fire.outbound_events import announce_brought_forward
from headway_scheduler.lookup import input_problem, lock_manifest
from headway_scheduler.store import OUTBOX, audit_to, occurrences, operator, works

# The result of a trigger that is answered as a conflict.
REFUSED = "refused"
_LONGEST_VALUE = 100


class Busy(Struct, frozen=True, kw_only=True):
    """The outstanding work that leaves no room for a trigger; nothing is decided."""

    works: list[UUID]


async def trigger(
    connection: Connection,
    request: TriggerRequest,
    *,
    now: datetime,
    begun: Collection[UUID] | None = (),
) -> TriggerAnswer | Busy:
    """Run a manifest beside its schedule; its overlap policy decides while work is under way.

    Work that a worker has `begun` cannot be brought forward; with `None` that is not known yet.
    """
    manifest_id = await lock_manifest(connection, request.manifest)
    cause = identity.trigger_cause(request.key or str(new_id()))
    if request.key is not None:
        known = await connection.fetch(occurrences["of_causes"], [manifest_id], [cause])
        if known:
            # A repeated key has the same answer, also if the manifest changed meanwhile.
            return _known(request, known[0])
    manifest = await read_triggered(connection, request, manifest_id, now=now)
    row = _owed(request, manifest_id, cause, now)
    busy = not has_room(manifest.view)
    # A delayed trigger is owed until its time: meanwhile its slot is free for the schedule.
    if busy and row.not_before is None and manifest.view.overlap.policy in ("skip", "allow"):
        outstanding = await connection.fetch(works["outstanding_of"], [manifest_id])
        if begun is None:
            return Busy(works=[work["id"] for work in outstanding])
        waiting = [work for work in outstanding if work["id"] not in begun]
        if waiting:
            return await _bring_forward(connection, request, manifest, row, waiting[0], now)
        return await _refuse(connection, request, row, outstanding[0], now)
    if manifest.view.owed and not busy:
        # Older decisions go first.
        note(await tick.advance(connection, [manifest_id], now=now, rule=due.queue_owed))
        manifest = await read_triggered(connection, request, manifest_id, now=now)
    return await _queue(connection, request, manifest, row, now)


async def read_triggered(
    connection: Connection, request: TriggerRequest, manifest_id: UUID, *, now: datetime
) -> decide.Manifest:
    """Read a locked manifest; raises if it cannot run now, or not with this input."""
    [row] = await decide.read_rows(connection, [manifest_id])
    manifest = decide.read_manifest(row, now=now)
    if isinstance(manifest, decide.UnreadableManifest):
        raise Conflict(f"manifest {request.manifest!r} cannot be read: {manifest.trouble}")
    if row["job_retired_at"] is not None:
        why = retired_message(manifest.job, row["job_retired_at"])
        raise Conflict(f"manifest {request.manifest!r} cannot run: {why}")
    if row["blocked_by"] is not None:
        raise Conflict(
            f"manifest {request.manifest!r} is blocked by a dead letter: retry that with "
            f"'headway dead-letters retry {row['blocked_by']}', or acknowledge it"
        )
    if request.input is UNSET:
        return manifest
    try:
        decide.key_of(manifest, request.input)
    except InvalidKey as error:
        raise Invalid(str(error)) from error
    problem = input_problem(
        manifest.job, manifest.input_schema, manifest.takes_input, request.input
    )
    if problem is not None:
        raise Invalid(problem)
    return manifest


def _owed(request: TriggerRequest, manifest: UUID, cause: str, now: datetime) -> decide.LedgerRow:
    """Return the decision of a trigger before it is known whether there is room."""
    delay = timedelta(seconds=request.delay_seconds)
    return decide.LedgerRow.owed(
        manifest,
        cause,
        now,
        actor=request.actor or None,
        explicit=True,
        has_input=request.input is not UNSET,
        input=None if request.input is UNSET else request.input,
        not_before=now + delay if delay else None,
        priority=request.priority,
        start_within_seconds=request.start_within_seconds,
    )


async def _queue(
    connection: Connection,
    request: TriggerRequest,
    manifest: decide.Manifest,
    owed: decide.LedgerRow,
    now: datetime,
) -> TriggerAnswer:
    """Queue the work of a trigger, or owe it until its time or until there is room."""
    manifest = _owing(manifest, owed)
    view, name = manifest.view, request.manifest
    decided, messages = owed, []
    troubles: dict[UUID, str] = {}
    verdict: Verdict | None = None
    try:
        verdict = due.queue_owed(view, now=now)
        if any(release.cause != owed.cause for release in verdict.releases):
            # Too many older decisions to release all at once: the tick goes on at once.
            verdict = due.reschedule_wake(view, now=now)
    except Exception as error:  # noqa: BLE001 - a zone unknown here, or any fault of the rules
        troubles[view.id] = f"{type(error).__name__}: {error}"
    for row in decide.rows_of(manifest, verdict) if verdict else ():
        if row.decision == "skipped":
            raise Conflict(f"{name}: {row.reason}")
        # The ledger keeps the input of the request only, the message has that of the manifest too.
        decided = structs.replace(row, has_input=owed.has_input, input=owed.input)
        messages = decide.announce_work([decide.queued_work(manifest, row, now=now)], now=now)
        note(*decide.facts_of(manifest, row, now))
    result = "queued" if messages else "owed"
    writes = StatementBatch()
    tick.decide_to(writes, decided, verdict, now=now)
    data = {"result": result, "cause": owed.cause}
    await _send(connection, writes, request, data, messages, now)
    await tick.postpone(connection, troubles, now)
    note(tick.Advanced(wake_at=verdict.wake_at if verdict else None))
    if messages:
        held = " (its group is disabled, which holds it)" if view.hold == "group_disabled" else ""
        return TriggerAnswer(result=result, work=decided.work, text=f"{name}: queued{held}")
    runs = f"runs as soon as the work under way has ended (overlap policy {view.overlap.policy!r})"
    if owed.not_before:
        runs = f"delayed until {utc(owed.not_before)}; it waits longer while other work of it runs"
    return TriggerAnswer(result=result, text=f"{name}: {runs}")


def _owing(manifest: decide.Manifest, row: decide.LedgerRow) -> decide.Manifest:
    """Return the manifest as it is once it owes one more decision."""
    view = manifest.view
    if row.not_before is None:
        view = structs.replace(view, owed=(*view.owed, Owed(cause=row.cause, explicit=True)))
    else:
        view = structs.replace(
            view, next_owed_at=tick.earliest((view.next_owed_at, row.not_before))
        )
    return structs.replace(manifest, view=view, owed={**manifest.owed, row.cause: row})


async def _bring_forward(
    connection: Connection,
    request: TriggerRequest,
    manifest: decide.Manifest,
    owed: decide.LedgerRow,
    oldest: Any,
    now: datetime,
) -> TriggerAnswer:
    """Let the oldest work that still waits go first."""
    message = announce_brought_forward(oldest["id"], group=manifest.group, now=now)
    writes = await _without_work(connection, owed, oldest, oldest["id"], now)
    writes.add(works["note_forward"], oldest["id"], now)
    data = {"result": "brought_forward", "cause": owed.cause}
    await _send(connection, writes, request, data, [message], now)
    text = (
        f"{manifest.external_id}: work {oldest['id']} of it waits since "
        f"{utc(oldest['queued_at'])}; by its overlap policy {manifest.view.overlap.policy!r} no "
        "second one was queued, but if that still waits it now comes first"
    )
    return _forwarded(request, data["result"], oldest["id"], text)


async def _refuse(
    connection: Connection,
    request: TriggerRequest,
    owed: decide.LedgerRow,
    oldest: Any,
    now: datetime,
) -> TriggerAnswer:
    """Record that work under way left no room for a trigger."""
    writes = await _without_work(connection, owed, oldest, None, now)
    data = {"result": REFUSED, "cause": owed.cause}
    await _send(connection, writes, request, data, [], now)
    [known] = await connection.fetch(occurrences["of_causes"], [owed.manifest], [owed.cause])
    return _refused(request, known)


async def _without_work(
    connection: Connection,
    owed: decide.LedgerRow,
    oldest: Any,
    forward: UUID | None,
    now: datetime,
) -> StatementBatch:
    """Record that a trigger makes no work because of the oldest one."""
    skipped = structs.replace(owed, decision="skipped", reason=STILL_OUTSTANDING)
    await tick.write_ledger(connection, [skipped], now=now)
    writes = StatementBatch()
    values = owed.manifest, owed.cause, forward, oldest["cause"]
    writes.add(occurrences["note_forward"], *values)
    return writes


async def _send(
    connection: Connection,
    writes: StatementBatch,
    request: TriggerRequest,
    data: dict[str, str],
    messages: Sequence[OutboxMessage],
    now: datetime,
) -> None:
    """Send the writes of a trigger in one statement with its audit entry and its messages.

    The messages are handed to the relay after the commit.
    """
    OUTBOX.add_to(writes, messages)
    kind, entry = "headway.manifest.triggered.v1", (request.manifest, data)
    audit_to(writes, kind, operator(request), [entry], now=now)
    await writes.send(connection)
    note(tick.Advanced(messages=stamped(messages)))


def _known(request: TriggerRequest, known: Any) -> TriggerAnswer:
    """Answer a repeated key: the answer names the same work."""
    _check_key(request, known)
    text = f"{request.manifest}: the key {request.key!r} triggered it before"
    forward = known["brought_forward"]
    if forward is None and known["reason"] == STILL_OUTSTANDING:
        return _refused(request, known)
    if forward is None:
        return TriggerAnswer(result="known", work=known["work_id"], text=text)
    return _forwarded(request, "known", forward, f"{text}, and brought forward the work {forward}")


def _refused(request: TriggerRequest, known: Any) -> TriggerAnswer:
    """Explain a refusal from the ledger, so that a repeated key has the same answer."""
    under_way = f"work {known['kept_with_work']}" if known["kept_with_work"] else "work"
    text = (
        f"{request.manifest}: not triggered at {utc(known['first_due_at'])}, because {under_way} "
        f"of it was under way and its overlap policy is {known['policies']['overlap']!r}: trigger "
        "it again when that has ended, or let triggers wait with overlap='queue_one'"
    )
    return TriggerAnswer(result=REFUSED, text=text)


def _forwarded(request: TriggerRequest, result: str, work: UUID, text: str) -> TriggerAnswer:
    """Name the work that goes first; the values that the request states are not used."""
    stated = {
        "input": request.input is not UNSET,
        "priority": request.priority is not None,
        "start_within": request.start_within_seconds is not None,
    }
    unused = [name for name, is_stated in stated.items() if is_stated]
    if unused:
        text += (
            f"; it keeps its own {', '.join(unused)}: the values of this request were not used "
            "(trigger again once it has ended)"
        )
    return TriggerAnswer(result=result, work=work, text=text, not_used=unused)


def _check_key(request: TriggerRequest, known: Any) -> None:
    """Raise if a key was used before with other parameters."""
    delay = known["not_before"] - known["first_due_at"] if known["not_before"] else timedelta(0)
    before = {
        "input": known["input"] if known["has_input"] else UNSET,
        "delay": delay.total_seconds(),
        "priority": known["priority"],
        "start_within": known["start_within_seconds"],
    }
    now = {
        "input": request.input,
        "delay": timedelta(seconds=request.delay_seconds).total_seconds(),
        "priority": request.priority,
        "start_within": request.start_within_seconds,
    }
    differences = ", ".join(
        f"{name} was {_shown(before[name])}, now {_shown(now[name])}"
        for name in before
        if before[name] != now[name]
    )
    if differences:
        raise Conflict(
            f"{request.manifest}: the key {request.key!r} was used before with other parameters "
            f"({differences}): use another key, or the same parameters"
        )


def _shown(value: Any) -> str:
    if value is UNSET or value is None:
        return "the manifest's own"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
