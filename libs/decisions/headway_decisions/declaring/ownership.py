"""Decide who owns each setting of a manifest or a group: an operator, code, or no owner.

An operator owns a field from the first change of it until it is given back. Code owns the others.
A field of a group that neither states has its default.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from headway_contract.manifests import FieldOwner
from headway_contract.work import stored_retry
from msgspec import Struct, structs

# Fields of a manifest that operators may own, and the fields that "retry" gives back together.
RETRY_FIELDS = {"attempts": "attempts", "interval": "interval_seconds"}
API_OWNER = "api"

GROUP_DEFAULTS: Mapping[str, Any] = {
    "max_active": None,
    "priority": 0,
    "enabled": True,
    "rate": None,
}


def expand_fields(names: Sequence[str]) -> set[str]:
    """Return the fields that a request names; "retry" stands for all of its fields."""
    return {field for name in names for field in (RETRY_FIELDS if name == "retry" else (name,))}


def manifest_values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that operators may own, with their values in force."""
    retry = stored_retry(row["terms"]["retry"])
    owned = {field: retry.get(stored) for field, stored in RETRY_FIELDS.items()}
    return {"enabled": row["enabled"], **owned, "jitter": row["jitter_seconds"]}


def manifest_owners(row: Mapping[str, Any]) -> list[FieldOwner]:
    """Return who owns each field of a manifest, and the command that gives it back."""
    owners = []
    for field, value in manifest_values(row).items():
        if field in row["operator_fields"]:
            command = f"headway change {row['external_id']} --give-back {field}"
            owner = FieldOwner(field=field, value=value, owner="operator", give_back=command)
        elif row["owner"] == API_OWNER:
            owner = FieldOwner(field=field, value=value, owner="api")
        else:
            owner = FieldOwner(field=field, value=value, owner="code", application=row["owner"])
        owners.append(owner)
    return owners


class Stated(Struct, frozen=True, kw_only=True):
    """A setting of a group that code states, and the application that states it."""

    value: Any
    app: str


class GroupSettings(Struct, frozen=True, kw_only=True):
    """The settings of a group: values in force, fields that operators own, statements of code."""

    name: str
    values: dict[str, Any]
    operator_fields: frozenset[str] = frozenset()
    declared: dict[str, Stated] = {}


def read_group(row: Any) -> GroupSettings:
    """Read the settings of a group out of its row."""
    return GroupSettings(
        name=row["name"],
        values={field: row[field] for field in GROUP_DEFAULTS},
        operator_fields=frozenset(row["operator_fields"]),
        declared=msgspec.convert(row["declared"], dict[str, Stated]),
    )


def restate(known: GroupSettings, stated: Mapping[str, Any], *, app: str) -> GroupSettings:
    """Apply the fields that an application states; its earlier ones return to their defaults."""
    declared = {
        field: statement
        for field, statement in known.declared.items()
        if statement.app != app or field in stated
    }
    declared |= {field: Stated(value=value, app=app) for field, value in stated.items()}
    return in_force(structs.replace(known, declared=declared))


def in_force(settings: GroupSettings) -> GroupSettings:
    """Set each field that no operator owns to what code states, or to its default."""
    stated = {field: statement.value for field, statement in settings.declared.items()}
    values = {
        field: settings.values[field]
        if field in settings.operator_fields
        else stated.get(field, default)
        for field, default in GROUP_DEFAULTS.items()
    }
    return structs.replace(settings, values=values)


def group_owners(settings: GroupSettings) -> list[FieldOwner]:
    """Return who owns each setting of a group, and the command that gives it back."""
    owners = []
    for field, value in settings.values.items():
        statement = settings.declared.get(field)
        if field in settings.operator_fields:
            command = f"headway group {settings.name} --give-back {field.replace('_', '-')}"
            owner = FieldOwner(field=field, value=value, owner="operator", give_back=command)
        elif statement is not None:
            owner = FieldOwner(field=field, value=value, owner="code", application=statement.app)
        else:
            owner = FieldOwner(field=field, value=value, owner="default")
        owners.append(owner)
    return owners
