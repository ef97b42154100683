"""Change the settings of manifests, groups and jobs that operators own, with an audit entry."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import API_OWNER
from headway_contract.fields import Rate
from headway_contract.manifests import ChangeRequest, DeleteRequest
from headway_contract.operations import ChangeGroupRequest, ChangeJobRequest
from headway_contract.work import stored_retry
from headway_decisions.capacity.rates import rate_in_words
from headway_decisions.declaring import ownership
from headway_decisions.wording import counted
from headway_errors import Conflict, Invalid, NotFound
from headway_postgres_kit import Connection
from msgspec import UNSET, structs

from headway_scheduler import store
from headway_scheduler.declare import one_shots, prune
from headway_scheduler.fire.missed import skip_missed_during_pause
from headway_scheduler.fire.outbound_events import announce_group, announce_job, announce_switches
from headway_scheduler.fire.tick import reschedule_wake
from headway_scheduler.lookup import find_manifest

_LIMITS = ("max_active", "rate")
# Jobs that a rejection names.
_MOST_NAMED = 20


async def change(connection: Connection, request: ChangeRequest, *, now: datetime) -> str:
    """Change the operator's fields of a manifest; returns a description of the change."""
    found = await find_manifest(connection, request.manifest)
    locked = await store.lock_manifests(connection, [found["id"]])
    row = await find_manifest(connection, request.manifest)
    fields = {
        "enabled": request.enabled,
        "attempts": request.attempts,
        "interval": request.interval_seconds,
        "jitter": request.jitter_seconds,
    }
    stated = {field: value for field, value in fields.items() if value is not UNSET}
    _check_change(request, stated, row, now)
    before = {
        "enabled": row["enabled"],
        "disabled_by": row["disabled_by"],
        "retry": stored_retry(row["terms"]["retry"]),
        "jitter_seconds": row["jitter_seconds"],
        "operator_fields": sorted(row["operator_fields"]),
    }
    after = _changed(request, stated, before)
    if after == before:
        return f"{request.manifest}: nothing to change"
    await skip_missed_during_pause(connection, locked, now=now)
    await connection.execute(
        store.manifests["change"],
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
    kind = "headway.manifest.changed.v1"
    entry = (request.manifest, _audit_data(before, after))
    await store.audit(connection, kind, store.operator(request), [entry], now=now)
    text = _description(before, after)
    if after["enabled"] and not before["enabled"] and one_shots.has_come(row, now):
        text += ", until the work under way has ended: its one time has come"
    return f"{request.manifest}: {text}"


def _check_change(request: ChangeRequest, stated: Iterable[str], row: Any, now: datetime) -> None:
    named = f"manifest {request.manifest!r}"
    _refuse_both(named, stated, ownership.expand_fields(request.give_back))
    if request.jitter_seconds and row["timing"]["cadence"]["type"] == "manual":
        raise Invalid(
            f"{named} has no fire times of its own, so a jitter has no meaning for it: "
            "leave the jitter out"
        )
    if request.enabled is True and one_shots.is_spent(row, now):
        raise Conflict(one_shots.refusal(row))


def _changed(
    request: ChangeRequest, stated: Mapping[str, Any], before: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the operator's fields after the change, and which of them the operator owns."""
    after = dict(before)
    if "enabled" in stated:
        after["enabled"] = request.enabled
        after["disabled_by"] = None if request.enabled else "operator"
    if "jitter" in stated:
        after["jitter_seconds"] = request.jitter_seconds
    after["retry"] = after["retry"] | {
        stored: stated[field] for field, stored in ownership.RETRY_FIELDS.items() if field in stated
    }
    given_back = ownership.expand_fields(request.give_back)
    after["operator_fields"] = sorted({*before["operator_fields"], *stated} - given_back)
    return after


async def change_group(
    connection: Connection, request: ChangeGroupRequest, *, now: datetime
) -> str:
    """Change the settings of a group; returns a description of the change."""
    # A declaration locks manifests before groups, this request groups first: never at once.
    await connection.execute(store.manifests["lock_declaring"], store.DECLARE_LOCK)
    row = await connection.fetchrow(store.groups["lock"], request.group)
    if row is None:
        raise NotFound(f"there is no group {request.group!r}: see 'headway groups'")
    stated = {
        field: msgspec.to_builtins(value)
        for field in ownership.GROUP_DEFAULTS
        if (value := getattr(request, field)) is not UNSET
    }
    _refuse_both(f"group {request.group!r}", stated, request.give_back)
    known = ownership.read_group(row)
    # A field that is given back follows the code at once.
    changed = ownership.in_force(
        structs.replace(
            known,
            values={**known.values, **stated},
            operator_fields=(known.operator_fields | set(stated)) - set(request.give_back),
        )
    )
    before, after = (
        {**settings.values, "operator_fields": sorted(settings.operator_fields)}
        for settings in (known, changed)
    )
    if after == before:
        return f"group {request.group}: nothing to change"
    members: list[UUID] = []
    if after["enabled"] != before["enabled"]:
        found = await connection.fetch(store.groups["members"], request.group)
        members = await store.lock_manifests(connection, [member["id"] for member in found])
        await skip_missed_during_pause(connection, members, now=now)
    await connection.execute(
        store.groups["change"],
        request.group,
        after["max_active"],
        after["priority"],
        after["enabled"],
        after["operator_fields"],
        now,
        after["rate"],
    )
    [announced] = await connection.fetch(store.groups["read"], [request.group])
    await store.OUTBOX.add(connection, [announce_group(announced, now=now)])
    await reschedule_wake(connection, members, now=now)
    if members:
        # One-shots whose time came while the group was disabled are over.
        await connection.fetch(store.manifests["retire"], members)
    kind, entry = "headway.group.changed.v1", (request.group, _audit_data(before, after))
    await store.audit(connection, kind, store.operator(request), [entry], now=now)
    return f"group {request.group}: {_description(before, after)}"


async def change_job(connection: Connection, request: ChangeJobRequest, *, now: datetime) -> str:
    """Change the limits of a job; returns a description of the change."""
    await connection.execute(store.manifests["lock_declaring"], store.DECLARE_LOCK)
    row = await connection.fetchrow(store.manifests["lock_job"], request.job)
    if row is None:
        names = await connection.fetch(store.manifests["job_names"], _MOST_NAMED + 1)
        listed = ", ".join(row["name"] for row in names[:_MOST_NAMED])
        more = ", …" if len(names) > _MOST_NAMED else ""
        declared = f"declared are {listed}{more}" if names else "none is declared"
        raise NotFound(f"there is no job {request.job!r}: {declared}")
    before: dict[str, object] = row["operator_limits"]
    stated = {name: value for name in _LIMITS if (value := getattr(request, name)) is not UNSET}
    _refuse_both(f"job {request.job!r}", stated, request.give_back)
    after = {
        name: value
        for name, value in {**before, **msgspec.to_builtins(stated)}.items()
        if name not in request.give_back
    }
    if after == before:
        return f"job {request.job}: nothing to change"
    await connection.execute(store.manifests["limit_job"], request.job, after)
    [limits] = await connection.fetch(store.manifests["job_limits"], [request.job])
    await store.OUTBOX.add(connection, [announce_job(limits, now=now)])
    # The limits in force, whether an operator or the code set them.
    changed = {
        name: limits[name] for name in _LIMITS if name in stated or name in request.give_back
    }
    data = {**changed, "operator_limits": after, "before": {"operator_limits": before}}
    kind = "headway.job.changed.v1"
    await store.audit(connection, kind, store.operator(request), [(request.job, data)], now=now)
    return f"job {request.job}: {_settings_message(changed)}"


async def delete(connection: Connection, request: DeleteRequest, *, now: datetime) -> str:
    """Delete a manifest that was made at run time, or that its code no longer declares."""
    # Lock first, so that a declaration at the same time counts.
    await connection.execute(store.manifests["lock_declaring"], store.DECLARE_LOCK)
    row = await find_manifest(connection, request.manifest)
    if row["owner"] != API_OWNER and row["undeclared_at"] is None:
        raise Conflict(
            f"manifest {request.manifest!r} is declared by the application {row['owner']!r}: "
            "remove it from the code, or disable it"
        )
    reason = "deleted by an operator"
    await prune.mark(
        connection, [row["id"]], source=store.operator(request), reason=reason, now=now
    )
    return f"{request.manifest}: will be deleted when its live runs have ended"


def _refuse_both(named: str, stated: Iterable[str], given_back: Iterable[str]) -> None:
    """Raise if a request both changes a field and gives it back."""
    both = sorted(set(stated) & set(given_back))
    if both:
        raise Invalid(
            f"{named}: {', '.join(both)} cannot be changed and given back: do one of them"
        )


def _audit_data(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that changed, and their values before."""
    changed = [key for key in after if after[key] != before[key]]
    return {key: after[key] for key in changed} | {"before": {key: before[key] for key in changed}}


def _description(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Describe the settings that changed, or else the fields whose owner changed."""
    text = _settings_message({key: after[key] for key in after if after[key] != before[key]})
    taken = sorted(set(after["operator_fields"]) - set(before["operator_fields"]))
    if text or not taken:
        return text or "the code owns it again"
    return f"values unchanged, but the code no longer decides about {', '.join(taken)}"


def _settings_message(changed: Mapping[str, Any]) -> str:
    # `enabled` and `disabled_by` may change together, and are described once.
    texts = dict.fromkeys(_setting_message(key, value) for key, value in changed.items())
    return ", ".join(filter(None, texts))


def _setting_message(key: str, value: Any) -> str:
    match key:
        case "enabled":
            return "enabled" if value else "disabled"
        case "disabled_by":
            return "disabled" if value else ""
        case "retry":
            interval = f"{value['interval_seconds']:g} s apart at first"
            return f"{counted(value['attempts'], 'attempt')}, {interval}"
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
