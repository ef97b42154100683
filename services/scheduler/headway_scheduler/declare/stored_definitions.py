"""Stored definitions, for the audit of a declaration and for remarks about operators' fields."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from headway.define.definitions import ManifestDefinition
from headway_decisions.declaring.lookup import stored_definition
from headway_decisions.declaring.ownership import RETRY_FIELDS, manifest_owners
from headway_postgres_kit import Connection

from headway_scheduler.lookup import queries

# Fields that operators may own, and the column that holds each; those of a retry policy are apart.
_OPERATOR_COLUMNS = {"enabled": "enabled", "jitter": "jitter_seconds"}


async def stored_manifests(connection: Connection, ids: Sequence[UUID]) -> dict[str, Any]:
    """Fetch the rows of manifests by external id."""
    rows = await connection.fetch(queries["definitions_of"], ids) if ids else []
    return {row["external_id"]: row for row in rows}


def stored_definitions(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored definitions without the fields that code does not decide."""
    found = {}
    for row in rows.values():
        kept = {
            _OPERATOR_COLUMNS[name] for name in row["operator_fields"] if name in _OPERATOR_COLUMNS
        }
        if row["disabled_by"] not in (None, "code"):
            kept.add("enabled")
        stored = {name: value for name, value in stored_definition(row).items() if name not in kept}
        owned = {RETRY_FIELDS[name] for name in row["operator_fields"] if name in RETRY_FIELDS}
        retry = stored["retry"]
        stored["retry"] = {name: retry[name] for name in retry if name not in owned}
        found[row["external_id"]] = stored
    return found


def kept_messages(definitions: Sequence[ManifestDefinition], rows: Mapping[str, Any]) -> list[str]:
    """Name each field of changed definitions that stays as an operator set it."""
    return [
        f"manifest {manifest.external_id!r}: {owner.field} stays {owner.value} as an operator set "
        f"it, and the code says {wanted[owner.field]}: to let the code decide, run "
        f"'{owner.give_back}'"
        for manifest in definitions
        for wanted in [_operator_fields(manifest)]
        for owner in manifest_owners(rows[manifest.external_id])
        if owner.owner == "operator"
        and owner.value != wanted[owner.field]
        and not (owner.field == "enabled" and _restarts(rows[manifest.external_id]))
    ]


def _operator_fields(definition: ManifestDefinition) -> dict[str, Any]:
    """Return the fields that operators may own, as a definition states them."""
    return {
        "enabled": definition.enabled,
        "attempts": definition.retry.attempts,
        "interval": definition.retry.interval_seconds,
        "jitter": definition.jitter_seconds,
    }


def _restarts(row: Any) -> bool:
    """Return whether a declaration enables a manifest although an operator owns the field."""
    return row["disabled_by"] in ("pruned", "once")


def audited_definition(definition: ManifestDefinition, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the audit data of a declared manifest: the definition, and the one before.

    Fields that have their default before and after are left out.
    """
    data: dict[str, Any] = msgspec.to_builtins(definition)
    known = stored.get(definition.external_id)
    if known is None:
        return data
    fields = {name: getattr(definition, name) for name in definition.__struct_fields__}
    # Through JSON, as it is stored: tuples become lists.
    now = msgspec.json.decode(msgspec.json.encode(fields))
    # Fields of the retry policy that an operator owns are not part of the change.
    known = {**known, "retry": {**now["retry"], **known["retry"]}}
    before = {
        name: known.get(name, value)
        for name, value in now.items()
        if name in data or known.get(name, value) != value
    }
    return {**data, "before": before}
