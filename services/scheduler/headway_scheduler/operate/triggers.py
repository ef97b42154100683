"""Trigger a manifest beside its schedule."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
from headway_clock import new_id
from headway_contract.manifests import TriggerAnswer, TriggerRequest
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.firing import identity, manifest_state
from headway_errors import Conflict, Invalid
from headway_postgres_kit import Connection
from msgspec import UNSET, structs

from headway_scheduler.declare.checks import retired_message
from headway_scheduler.fire.decide import queue_owed
from headway_scheduler.fire.manifest import (
    LedgerRow,
    Manifest,
    UnreadableManifest,
    key_of,
    read_manifests,
)
from headway_scheduler.fire.outbound_events import announce_brought_forward
from headway_scheduler.fire.record import write_ledger
from headway_scheduler.input_checks import problem_of_given
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate.changes import note_change
from headway_scheduler.store import (
    OUTBOX,
    lock_manifests,
    occurrences,
    works,
)

_LONGEST_VALUE = 100


async def trigger(
    connection: Connection, request: TriggerRequest, *, now: datetime
) -> TriggerAnswer:
    """Run a manifest beside its schedule; the overlap policy decides while one is under way."""
    row = await find_manifest(connection, request.manifest)
    await lock_manifests(connection, [row["id"]])
    cause = identity.trigger_cause(request.key or str(new_id()))
    known = await connection.fetch(occurrences["of_causes"], [row["id"]], [cause])
    if known:
        # What has become of the manifest since does not make another answer of it.
        return _known(request, known[0])
    [manifest] = await read_manifests(connection, [row["id"]], now=now)
    if isinstance(manifest, UnreadableManifest):
        raise Conflict(f"manifest {request.manifest!r} cannot be read: {manifest.trouble}")
    check_trigger(request, manifest, row)
    answer = await _trigger(connection, request, manifest, cause, now)
    data = {"result": answer.result, "cause": cause}
    await note_change(
        connection, "headway.manifest.triggered.v1", request, request.manifest, data, now
    )
    return answer


async def _trigger(
    connection: Connection,
    request: TriggerRequest,
    manifest: Manifest,
    cause: str,
    now: datetime,
) -> TriggerAnswer:
    view, called = manifest.view, request.manifest
    delayed = now + timedelta(seconds=request.delay_seconds) if request.delay_seconds else None
    row = LedgerRow(
        manifest=view.id,
        cause=cause,
        first_due_at=now,
        last_due_at=now,
        decision="owed",
        reason=manifest_state.AWAITS_ROOM,
        actor=request.actor or None,
        explicit=True,
        has_input=request.input is not UNSET,
        input=None if request.input is UNSET else request.input,
        not_before=delayed,
    )
    busy = len(view.slots) >= view.overlap.slots
    # What is asked for later is owed until then: its slot is free for the schedule meanwhile.
    if busy and delayed is None and view.overlap.policy in ("skip", "allow"):
        skipped = structs.replace(row, decision="skipped", reason="still_outstanding")
        await write_ledger(connection, [skipped], now=now)
        await _set_terms(connection, request, skipped)
        return await _bring_forward(connection, request, manifest, cause, now)
    await write_ledger(connection, [row], now=now)
    await _set_terms(connection, request, row)
    await queue_owed(connection, [view.id], now=now)
    [written] = await connection.fetch(occurrences["of_causes"], [view.id], [cause])
    if written["decision"] == "queued":
        held = " (its group is disabled, which holds it)" if view.hold == "group_disabled" else ""
        return TriggerAnswer(
            result="queued", work=written["work_id"], text=f"{called}: queued{held}"
        )
    if written["decision"] == "skipped":
        raise Conflict(f"{called}: {written['reason']}")
    after = f"at {delayed:%Y-%m-%d %H:%M:%S} UTC, or " if delayed else ""
    policy = "" if delayed else f" (by its overlap policy {view.overlap.policy!r})"
    return TriggerAnswer(
        result="owed",
        text=f"{called}: runs {after}as soon as the work under way has ended{policy}",
    )


async def _set_terms(connection: Connection, request: TriggerRequest, row: LedgerRow) -> None:
    if request.priority is not None or request.start_within_seconds is not None:
        await connection.execute(
            occurrences["set_terms"],
            row.manifest,
            [row.cause],
            request.priority,
            request.start_within_seconds,
        )


async def _bring_forward(
    connection: Connection,
    request: TriggerRequest,
    manifest: Manifest,
    cause: str,
    now: datetime,
) -> TriggerAnswer:
    """Work of it is under way: if it still waits, it comes first."""
    rows = await connection.fetch(works["outstanding_of"], [manifest.view.id])
    oldest = rows[0]
    await OUTBOX.add(
        connection, [announce_brought_forward(oldest["id"], group=manifest.group, now=now)]
    )
    await connection.execute(works["note_forward"], oldest["id"], now)
    await connection.execute(
        occurrences["note_forward"], manifest.view.id, cause, oldest["id"], oldest["cause"]
    )
    not_used = _stated(request)
    return TriggerAnswer(
        result="brought_forward",
        work=oldest["id"],
        text=f"{manifest.external_id}: work of it is under way since "
        f"{oldest['queued_at']:%Y-%m-%d %H:%M:%S} UTC (cause {oldest['cause']}); by its overlap "
        f"policy {manifest.view.overlap.policy!r} no second one was queued, but if it still waits "
        f"it now comes first{_not_used_message(not_used)}",
        not_used=not_used,
    )


def _known(request: TriggerRequest, known: Any) -> TriggerAnswer:
    """The answer to a key that came before: it names the same work."""
    _check_key(request, known)
    text = f"{request.manifest}: the key {request.key!r} triggered it before"
    forward = known["brought_forward"]
    if forward is None:
        return TriggerAnswer(result="known", work=known["work_id"], text=text)
    not_used = _stated(request)
    return TriggerAnswer(
        result="known",
        work=forward,
        text=f"{text}, and brought forward the work {forward}{_not_used_message(not_used)}",
        not_used=not_used,
    )


def _stated(request: TriggerRequest) -> list[str]:
    """What a trigger says of its work in place of what the manifest says."""
    stated = {
        "input": request.input is not UNSET,
        "priority": request.priority is not None,
        "start_within": request.start_within_seconds is not None,
    }
    return [name for name, is_stated in stated.items() if is_stated]


def _not_used_message(names: list[str]) -> str:
    if not names:
        return ""
    return (
        f"; it keeps its own {', '.join(names)}: what you stated was not used "
        "(trigger again once it has ended)"
    )


def check_trigger(request: TriggerRequest, manifest: Manifest, row: Any) -> None:
    """Raise if nobody may run a manifest now, or not with this input."""
    if row["job_retired_at"] is not None:
        why = retired_message(manifest.job, row["job_retired_at"])
        raise Conflict(f"manifest {request.manifest!r} cannot run: {why}")
    if row["blocked_by"] is not None:
        raise Conflict(
            f"manifest {request.manifest!r} is blocked by the dead letter {row['blocked_by']}: "
            f"retry or acknowledge that first ('headway dead-letters list --manifest "
            f"{request.manifest}')"
        )
    if request.input is UNSET:
        return
    try:
        key_of(manifest, request.input)
    except InvalidKey as error:
        raise Invalid(str(error)) from error
    problem = problem_of_given(
        manifest.job, manifest.input_schema, manifest.takes_input, request.input
    )
    if problem is not None:
        raise Invalid(problem)


def _check_key(request: TriggerRequest, known: Any) -> None:
    """The same key asks for the same thing, or it is somebody's mistake."""
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
    differ = [name for name in before if before[name] != now[name]]
    if differ:
        said = ", ".join(f"{one} was {_said(before[one])}, now {_said(now[one])}" for one in differ)
        raise Conflict(
            f"{request.manifest}: the key {request.key!r} was used before with other parameters "
            f"({said}): use another key, or the same parameters"
        )


def _said(value: Any) -> str:
    if value is UNSET or value is None:
        return "the manifest's own"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"
