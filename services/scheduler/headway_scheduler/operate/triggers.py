"""Trigger a manifest beside its schedule, or backfill the occurrences of a past range.

Each occurrence of a backfill is a decision of the ledger with a cause of its own, so that a
repeated request changes nothing. They wait for room like triggers and run oldest first, one after
the other or as many at once as the overlap policy `allow` permits.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway_clock import new_id
from headway_contract.manifests import (
    BackfillAnswer,
    BackfillRequest,
    TriggerAnswer,
    TriggerRequest,
)
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.firing import due, identity
from headway_decisions.firing.manifest_state import Owed, Verdict, has_room
from headway_decisions.firing.misfires import MOST_BACKFILLED, range_occurrences, range_problem
from headway_decisions.wording import utc
from headway_errors import Conflict, Invalid
from headway_postgres_kit import Connection, StatementBatch, note
from headway_relay import OutboxMessage, stamped
from msgspec import UNSET, structs

from headway_scheduler.declare.checks import retired_message
from headway_scheduler.fire import decide, tick
from headway_scheduler.fire.outbound_events import announce_brought_forward
from headway_scheduler.lookup import aware, input_problem, lock_manifest
from headway_scheduler.store import OUTBOX, audit, audit_to, occurrences, operator, works

_LONGEST_VALUE = 100


async def trigger(
    connection: Connection, request: TriggerRequest, *, now: datetime
) -> TriggerAnswer:
    """Run a manifest beside its schedule; its overlap policy decides while work is under way."""
    manifest_id = await lock_manifest(connection, request.manifest)
    cause = identity.trigger_cause(request.key or str(new_id()))
    if request.key is not None:
        known = await connection.fetch(occurrences["of_causes"], [manifest_id], [cause])
        if known:
            # A repeated key has the same answer, also if the manifest changed meanwhile.
            return _known(request, known[0])
    manifest = await _read_triggered(connection, request, manifest_id, now=now)
    row = _owed(request, manifest_id, cause, now)
    busy = not has_room(manifest.view)
    # A delayed trigger is owed until its time: meanwhile its slot is free for the schedule.
    if busy and row.not_before is None and manifest.view.overlap.policy in ("skip", "allow"):
        return await _bring_forward(connection, request, manifest, row, now)
    if manifest.view.owed and not busy:
        # Older decisions go first.
        note(await tick.advance(connection, [manifest_id], now=now, rule=due.queue_owed))
        manifest = await _read_triggered(connection, request, manifest_id, now=now)
    return await _queue(connection, request, manifest, row, now)


async def _read_triggered(
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
            f"manifest {request.manifest!r} is blocked by the dead letter {row['blocked_by']}: "
            f"retry or acknowledge that first ('headway dead-letters list --manifest "
            f"{request.manifest}')"
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
    after = f"at {utc(owed.not_before)}, or " if owed.not_before else ""
    policy = "" if owed.not_before else f" (by its overlap policy {view.overlap.policy!r})"
    return TriggerAnswer(
        result=result, text=f"{name}: runs {after}as soon as the work under way has ended{policy}"
    )


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
    now: datetime,
) -> TriggerAnswer:
    """Let the oldest outstanding work go first if it still waits."""
    skipped = structs.replace(owed, decision="skipped", reason="still_outstanding")
    await tick.write_ledger(connection, [skipped], now=now)
    rows = await connection.fetch(works["outstanding_of"], [manifest.view.id])
    oldest = rows[0]
    message = announce_brought_forward(oldest["id"], group=manifest.group, now=now)
    writes = StatementBatch()
    writes.add(works["note_forward"], oldest["id"], now)
    writes.add(
        occurrences["note_forward"], manifest.view.id, owed.cause, oldest["id"], oldest["cause"]
    )
    data = {"result": "brought_forward", "cause": owed.cause}
    await _send(connection, writes, request, data, [message], now)
    text = (
        f"{manifest.external_id}: work of it is under way since {utc(oldest['queued_at'])} "
        f"(cause {oldest['cause']}); by its overlap policy {manifest.view.overlap.policy!r} no "
        "second one was queued, but if it still waits it now comes first"
    )
    return _forwarded(request, data["result"], oldest["id"], text)


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
    if forward is None:
        return TriggerAnswer(result="known", work=known["work_id"], text=text)
    return _forwarded(request, "known", forward, f"{text}, and brought forward the work {forward}")


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


async def backfill(
    connection: Connection, request: BackfillRequest, *, now: datetime
) -> BackfillAnswer:
    """Queue the occurrences of a past range, or with `dry_run` only count them."""
    manifest_id = await lock_manifest(connection, request.manifest)
    trigger = TriggerRequest(manifest=request.manifest)
    manifest = await _read_triggered(connection, trigger, manifest_id, now=now)
    times = _occurrences(request, manifest, now)
    decided = await _decisions(connection, manifest, times, identity.due_cause)
    fired = {at for at, decision in decided.items() if decision != "skipped"}
    known = set(await _decisions(connection, manifest, times, identity.backfill_cause))
    left_out = known | (fired if request.missed_only else set())
    wanted = [due_at for due_at in times if due_at not in left_out]
    if wanted and not request.dry_run:
        rows = [
            decide.LedgerRow.owed(
                manifest.view.id,
                identity.backfill_cause(due_at),
                due_at,
                actor=request.actor or None,
                explicit=True,
                priority=request.priority,
            )
            for due_at in wanted
        ]
        await tick.write_ledger(connection, rows, now=now)
        await tick.advance(connection, [manifest.view.id], now=now, rule=due.queue_owed)
        data = {"since": wanted[0], "until": wanted[-1], "occurrences": len(wanted)}
        kind, entry = "headway.manifest.backfilled.v1", (request.manifest, data)
        await audit(connection, kind, operator(request), [entry], now=now)
    return BackfillAnswer(
        occurrences=len(times),
        queued=len(wanted),
        known=len(known),
        fired=len(fired),
        text=f"{request.manifest}: {len(wanted)} of {len(times)} occurrences "
        f"{_backfill_message(request, wanted, known=len(known), fired=len(fired))}",
    )


def _occurrences(
    request: BackfillRequest, manifest: decide.Manifest, now: datetime
) -> list[datetime]:
    since, until = aware(request.since), aware(request.until)
    timing = manifest.view.timing
    problem = range_problem(timing, since, until, now=now)
    if problem is not None:
        raise Invalid(f"manifest {request.manifest!r} cannot be backfilled: {problem}")
    times = range_occurrences(timing, since, until)
    if len(times) > MOST_BACKFILLED:
        raise Invalid(
            f"manifest {request.manifest!r} has more than {MOST_BACKFILLED} occurrences from "
            f"{since.isoformat()} to {until.isoformat()}: backfill a shorter range, then the next"
        )
    return times


async def _decisions(
    connection: Connection,
    manifest: decide.Manifest,
    times: Sequence[datetime],
    cause_of: Callable[[datetime], str],
) -> dict[datetime, str]:
    """Return the decisions of the ledger about occurrences, for one kind of cause."""
    causes = {cause_of(due_at): due_at for due_at in times}
    ids = [manifest.view.id] * len(causes)
    rows = await connection.fetch(occurrences["of_causes"], ids, list(causes))
    return {causes[row["cause"]]: row["decision"] for row in rows}


def _backfill_message(
    request: BackfillRequest, wanted: Sequence[datetime], *, known: int, fired: int
) -> str:
    details = [f"{known} were backfilled before"] if known else []
    if fired:
        verb = "left out" if request.missed_only else "run again"
        details.append(f"{fired} that fired on schedule are {verb}")
    span = f", {wanted[0].isoformat()} to {wanted[-1].isoformat()}" if wanted else ""
    more = f" ({'; '.join(details)})" if details else ""
    return f"{'would be queued' if request.dry_run else 'queued'}{span}{more}"
