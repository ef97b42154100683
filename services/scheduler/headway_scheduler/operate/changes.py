"""What operators do to manifests and groups. Every change is in the audit, with its actor."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import API_OWNER
from headway_contract.fields import Rate
from headway_contract.manifests import ChangeRequest, DeleteRequest
from headway_contract.operations import ChangeGroupRequest, ChangeJobRequest
from headway_decisions.capacity.rates import rate_in_words
from headway_decisions.declaring import ownership
from headway_errors import Conflict, Invalid, NotFound
from headway_postgres_kit import Connection
from msgspec import UNSET

from headway_scheduler.declare import one_shots, prune
from headway_scheduler.declare.group_settings import changed_by_operator
from headway_scheduler.fire.decide import (
    reschedule_wake,
    skip_missed_during_pause,
)
from headway_scheduler.fire.outbound_events import announce_group, announce_job
from headway_scheduler.fire.record import announce_switches
from headway_scheduler.lookup import find_manifest
from headway_scheduler.store import (
    DECLARE_LOCK,
    HISTORY,
    OUTBOX,
    audit,
    groups,
    lock_manifests,
    manifests,
)

_LIMITS = ("max_active", "rate")
# How many jobs a refusal names.
_MOST_NAMED = 20


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
    await skip_missed_during_pause(connection, locked, until=now, now=now)
    await connection.execute(
        manifests["change"],
        row["id"],
        after["enabled"],
        None if after["enabled"] else after["disabled_by"],
        after["retry"],
        after["jitter_seconds"],
        after["operator_fields"],
        bool(request.give_back),
    )
    await reschedule_wake(connection, locked, now=now)
    await announce_switches(connection, locked, now=now)
    told = _differing(after, before)
    data = {**told, "before": _differing(before, after)}
    await note_change(
        connection, "headway.manifest.changed.v1", request, request.manifest, data, now
    )
    said = in_words(told) or taken_message(before, after)
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
    before = {**known.values, "operator_fields": sorted(known.operator_fields)}
    after = {**changed_settings.values, "operator_fields": sorted(changed_settings.operator_fields)}
    if after == before:
        return f"group {request.group}: nothing to change"
    members: list[UUID] = []
    if after["enabled"] != before["enabled"]:
        found = await connection.fetch(groups["members"], request.group)
        members = await lock_manifests(connection, [one["id"] for one in found])
        await skip_missed_during_pause(connection, members, until=now, now=now)
    await connection.execute(
        groups["change"],
        request.group,
        after["max_active"],
        after["priority"],
        after["enabled"],
        after["operator_fields"],
        now,
        after["rate"],
    )
    [announced] = await connection.fetch(groups["read"], [request.group])
    await OUTBOX.add(connection, [announce_group(announced, now=now)])
    await reschedule_wake(connection, members, now=now)
    if members:
        # One-shots whose time came while the group was disabled have had their shot.
        await connection.fetch(manifests["retire"], members)
    changed = _differing(after, before)
    data = {**changed, "before": _differing(before, after)}
    await note_change(connection, "headway.group.changed.v1", request, request.group, data, now)
    return f"group {request.group}: {in_words(changed) or taken_message(before, after)}"


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
        "operator_fields": sorted(row["operator_fields"]),
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
    operator_fields = set(row["operator_fields"]) | set(stated)
    after["operator_fields"] = sorted(operator_fields - ownership.expand_fields(request.give_back))
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


async def change_job(connection: Connection, request: ChangeJobRequest, *, now: datetime) -> str:
    """Change the limits of a job; returns in words what was changed."""
    await connection.execute(manifests["lock_declaring"], DECLARE_LOCK)
    row = await connection.fetchrow(manifests["lock_job"], request.job)
    if row is None:
        raise NotFound(await _no_such_job(connection, request.job))
    before: dict[str, object] = row["operator_limits"]
    stated = {name: value for name in _LIMITS if (value := getattr(request, name)) is not UNSET}
    refuse_both(f"job {request.job!r}", stated, request.give_back)
    after = {
        name: value
        for name, value in {**before, **msgspec.to_builtins(stated)}.items()
        if name not in request.give_back
    }
    if after == before:
        return f"job {request.job}: nothing to change"
    await connection.execute(manifests["limit_job"], request.job, after)
    [limits] = await connection.fetch(manifests["job_limits"], [request.job])
    await OUTBOX.add(connection, [announce_job(limits, now=now)])
    # The limits in force, whoever set them.
    changed = {
        name: limits[name] for name in _LIMITS if name in stated or name in request.give_back
    }
    data = {**changed, "operator_limits": after, "before": {"operator_limits": before}}
    await note_change(connection, "headway.job.changed.v1", request, request.job, data, now)
    return f"job {request.job}: {in_words(changed)}"


async def _no_such_job(connection: Connection, name: str) -> str:
    rows = await connection.fetch(manifests["job_names"], _MOST_NAMED + 1)
    names = [row["name"] for row in rows]
    listed = ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return f"there is no job {name!r}: " + (
        f"declared are {listed}" if names else "none is declared"
    )


def in_words(told: Mapping[str, Any]) -> str:
    """What is otherwise than before; empty if that is only whose it is."""
    # Who disabled a manifest may change alone, and together with that it is.
    said = dict.fromkeys(_words(key, value) for key, value in told.items())
    return ", ".join(words for words in said if words)


def taken_message(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Whose settings are from now on that stay as they are."""
    taken = sorted(set(after["operator_fields"]) - set(before["operator_fields"]))
    if not taken:
        return "the code owns it again"
    return f"nothing else than before, but the code no longer decides about {', '.join(taken)}"


def _words(key: str, value: Any) -> str:
    match key:
        case "enabled":
            return "enabled" if value else "disabled"
        case "disabled_by":
            return "disabled" if value else ""
        case "retry":
            apart = f"{value['interval_seconds']:g} s apart at first"
            return f"{value['attempts']} attempt(s), {apart}"
        case "jitter_seconds":
            return f"jitter {value:g} s"
        case "max_active":
            return "any number at once" if value is None else f"at most {value} at once"
        case "priority":
            return f"priority {value}"
        case "rate":
            rate = msgspec.convert(value, Rate | None)
            return "at any rate" if rate is None else f"at most {rate_in_words(rate)}"
    return ""
