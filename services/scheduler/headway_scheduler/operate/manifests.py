"""What operators do to manifests and groups. Every change is in the audit, with its actor."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import API_OWNER
from headway_clock import new_id
from headway_contract.scheduling import (
    ChangeGroupRequest,
    ChangeRequest,
    DeleteRequest,
    TriggerAnswer,
    TriggerRequest,
)
from headway_decisions.capacity.keys import InvalidKey
from headway_decisions.declaring import ownership
from headway_decisions.firing import identity, manifest_state
from headway_errors import Conflict, Invalid, NotFound
from headway_postgres_kit import Connection
from msgspec import UNSET, structs

from headway_scheduler.declare import one_shots, prune
from headway_scheduler.declare.declare import audit, tell_switches
from headway_scheduler.declare.group_settings import changed_by_operator, group_changed
from headway_scheduler.declare.retired_jobs import retired
from headway_scheduler.fire.advance import account_for, let_go, put_to_rest, write_ledger
from headway_scheduler.fire.ledger import LedgerRow, key_of
from headway_scheduler.fire.manifest import Manifest, UnreadableManifest, read_manifests
from headway_scheduler.fire.outbound_events import announce_brought_forward, announce_group
from headway_scheduler.input_checks import problem_of_given
from headway_scheduler.lookup import find_manifest
from headway_scheduler.operate.change_messages import in_words, taken_in_words
from headway_scheduler.store import (
    DECLARE_LOCK,
    HISTORY,
    OUTBOX,
    groups,
    lock_manifests,
    manifests,
    occurrences,
    works,
)

_LONGEST_SAID = 100


async def change(connection: Connection, request: ChangeRequest, *, now: datetime) -> str:
    """Change what operators own of a manifest; returns in words what was changed."""
    found = await find_manifest(connection, request.manifest)
    locked = await lock_manifests(connection, [found["id"]])
    row = await find_manifest(connection, request.manifest)
    _check_change(request, row, now)
    before = _settings(row)
    after = _changed(request, row)
    if after == before:
        return f"{request.manifest}: nothing to change"
    await account_for(connection, locked, until=now, now=now)
    await connection.execute(
        manifests["change"],
        row["id"],
        after["enabled"],
        None if after["enabled"] else after["disabled_by"],
        after["retry"],
        after["jitter_seconds"],
        after["touched"],
        bool(request.give_back),
    )
    await put_to_rest(connection, locked, now=now)
    await tell_switches(connection, locked, now=now)
    told = _differing(after, before)
    data = {**told, "before": _differing(before, after)}
    await note_change(
        connection, "headway.manifest.changed.v1", request, request.manifest, data, now
    )
    said = in_words(told) or taken_in_words(before, after)
    if told.get("enabled") and one_shots.has_come(row, now):
        said += ", until the work under way has ended: its one time has come"
    return f"{request.manifest}: {said}"


async def change_group(
    connection: Connection, request: ChangeGroupRequest, *, now: datetime
) -> str:
    """Change the settings of a group; returns in words what was changed."""
    # A declaration locks manifests before groups, and we the other way round: not at once.
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    row = await connection.fetchrow(groups["lock"], request.group)
    if row is None:
        raise NotFound(f"there is no group {request.group!r}: see 'headway groups'")
    stated = {
        field: msgspec.to_builtins(value)
        for field in ownership.GROUP_DEFAULTS
        if (value := getattr(request, field)) is not UNSET
    }
    refuse_both(f"group {request.group!r}", stated, request.give_back)
    known = ownership.read_group(row)
    changed_settings = changed_by_operator(known, stated, request.give_back)
    before = {**known.values, "touched": sorted(known.touched)}
    after = {**changed_settings.values, "touched": sorted(changed_settings.touched)}
    if after == before:
        return f"group {request.group}: nothing to change"
    members: list[UUID] = []
    if after["enabled"] != before["enabled"]:
        found = await connection.fetch(groups["members"], request.group)
        members = await lock_manifests(connection, [one["id"] for one in found])
        await account_for(connection, members, until=now, now=now)
    await connection.execute(
        groups["change"],
        request.group,
        after["max_active"],
        after["priority"],
        after["enabled"],
        after["touched"],
        now,
        after["rate"],
    )
    [told] = await connection.fetch(groups["read"], [request.group])
    await OUTBOX.add(connection, [announce_group(group_changed(told), now=now)])
    await put_to_rest(connection, members, now=now)
    if members:
        # One-shots whose time came while the group was disabled have had their shot.
        await connection.fetch(manifests["retire"], members)
    changed = _differing(after, before)
    data = {**changed, "before": _differing(before, after)}
    await note_change(connection, "headway.group.changed.v1", request, request.group, data, now)
    return f"group {request.group}: {in_words(changed) or taken_in_words(before, after)}"


async def delete(connection: Connection, request: DeleteRequest, *, now: datetime) -> str:
    """Delete a manifest that was made at run time, or that its code no longer declares."""
    # Before it is asked whether code declares it: what a declaration says meanwhile counts.
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    row = await find_manifest(connection, request.manifest)
    if row["owner"] != API_OWNER and row["undeclared_at"] is None:
        raise Conflict(
            f"manifest {request.manifest!r} is declared by the application {row['owner']!r}: "
            "remove it from the code, or disable it"
        )
    await prune.mark(
        connection, [row["id"]], source=_source(request), reason="deleted by an operator", now=now
    )
    return f"{request.manifest}: is deleted as soon as its live runs have ended"


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
    await let_go(connection, [view.id], now=now)
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
        f"it now comes first{_not_used_in_words(not_used)}",
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
        text=f"{text}, and brought forward the work {forward}{_not_used_in_words(not_used)}",
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


def _not_used_in_words(names: list[str]) -> str:
    if not names:
        return ""
    return (
        f"; it keeps its own {', '.join(names)}: what you stated was not used "
        "(trigger again once it has ended)"
    )


def check_trigger(request: TriggerRequest, manifest: Manifest, row: Any) -> None:
    """Raise if nobody may run a manifest now, or not with this input."""
    if row["job_retired_at"] is not None:
        why = retired(manifest.job, row["job_retired_at"])
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
    return text if len(text) <= _LONGEST_SAID else f"{text[:_LONGEST_SAID]}…"


def refuse_both(named: str, stated: Iterable[str], given_back: Iterable[str]) -> None:
    """Raise for what is changed and given back in one request: nobody can mean both."""
    both = sorted(set(stated) & set(given_back))
    if both:
        raise Invalid(
            f"{named}: {', '.join(both)} cannot be changed and given back: do one of them"
        )


def _check_change(request: ChangeRequest, row: Any, now: datetime) -> None:
    named = f"manifest {request.manifest!r}"
    refuse_both(named, _stated_fields(request), ownership.expand_fields(request.give_back))
    if request.jitter_seconds and row["timing"]["cadence"]["type"] == "manual":
        raise Invalid(
            f"{named} has no fire times of its own, so a jitter has no meaning for it: "
            "leave the jitter out"
        )
    if request.enabled is True and one_shots.is_spent(row, now):
        raise Conflict(one_shots.refusal(row))


def _settings(row: Any) -> dict[str, Any]:
    return {
        "enabled": row["enabled"],
        "disabled_by": row["disabled_by"],
        "retry": row["terms"]["retry"],
        "jitter_seconds": row["jitter_seconds"],
        "touched": sorted(row["touched"]),
    }


def _changed(request: ChangeRequest, row: Any) -> dict[str, Any]:
    """The operator's fields after the change, and which of them are the operator's now."""
    after, stated = _settings(row), _stated_fields(request)
    if "enabled" in stated:
        after["enabled"] = request.enabled
        after["disabled_by"] = None if request.enabled else "operator"
    if "jitter" in stated:
        after["jitter_seconds"] = request.jitter_seconds
    after["retry"] = after["retry"] | {
        stored: stated[field] for field, stored in ownership.RETRY_FIELDS.items() if field in stated
    }
    touched = set(row["touched"]) | set(stated)
    after["touched"] = sorted(touched - ownership.expand_fields(request.give_back))
    return after


def _stated_fields(request: ChangeRequest) -> dict[str, Any]:
    """The fields that a request changes, by the names under which operators own them."""
    fields = {
        "enabled": request.enabled,
        "attempts": request.attempts,
        "interval": request.interval_seconds,
        "jitter": request.jitter_seconds,
    }
    return {field: value for field, value in fields.items() if value is not UNSET}


def _differing(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if value != other[key]}


def _source(request: Any) -> str:
    return f"operator/{request.actor or 'unknown'}"


async def note_change(
    connection: Connection, kind: str, request: Any, subject: str, data: Any, now: datetime
) -> None:
    """Write into the audit what an operator did."""
    await HISTORY.append(connection, [audit(kind, subject, _source(request), data, now)], now=now)
