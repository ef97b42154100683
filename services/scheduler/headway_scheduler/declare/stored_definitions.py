"""What the audit tells of a declaration: the definition, and what it was before."""

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
_TOUCHED = {"enabled": "enabled", "jitter": "jitter_seconds"}


async def stored_manifests(connection: Connection, ids: Sequence[UUID]) -> dict[str, Any]:
    """The rows of manifests by their external ids."""
    rows = await connection.fetch(queries["definitions_of"], ids) if ids else []
    return {row["external_id"]: row for row in rows}


def stored_definitions(rows: Mapping[str, Any]) -> dict[str, Any]:
    """Definitions of stored manifests, without the fields that code does not decide."""
    found = {}
    for row in rows.values():
        kept = {_TOUCHED[name] for name in row["touched"] if name in _TOUCHED}
        if row["disabled_by"] not in (None, "code"):
            kept.add("enabled")
        stored = {name: value for name, value in stored_definition(row).items() if name not in kept}
        owned = {RETRY_FIELDS[name] for name in row["touched"] if name in RETRY_FIELDS}
        retry = stored["retry"]
        stored["retry"] = {name: retry[name] for name in retry if name not in owned}
        found[row["external_id"]] = stored
    return found


def kept_messages(definitions: Sequence[ManifestDefinition], rows: Mapping[str, Any]) -> list[str]:
    """Name each field of changed definitions that stays as an operator set it."""
    return [
        f"manifest {one.external_id!r}: {owner.field} stays {owner.value} as an operator set it, "
        f"and the code says {wanted[owner.field]}: to let the code decide, run "
        f"'{owner.give_back}'"
        for one in definitions
        for wanted in [_wanted(one)]
        for owner in manifest_owners(rows[one.external_id])
        if owner.owner == "operator"
        and owner.value != wanted[owner.field]
        and not (owner.field == "enabled" and _restarts(rows[one.external_id]))
    ]


def _wanted(definition: ManifestDefinition) -> dict[str, Any]:
    """The fields that operators may own, as a definition states them."""
    return {
        "enabled": definition.enabled,
        "attempts": definition.retry.attempts,
        "interval": definition.retry.interval_seconds,
        "jitter": definition.jitter_seconds,
    }


def _restarts(row: Any) -> bool:
    """Whether a declaration decides the switch although an operator touched it."""
    return row["disabled_by"] in ("pruned", "once")


def told(definition: ManifestDefinition, stored: Mapping[str, Any]) -> dict[str, Any]:
    """A definition, and how it was before; without that if it is new.

    Both leave out what is at its default now and was so before.
    """
    data: dict[str, Any] = msgspec.to_builtins(definition)
    known = stored.get(definition.external_id)
    if known is None:
        return data
    fields = {name: getattr(definition, name) for name in definition.__struct_fields__}
    # As it is stored, which makes lists of tuples.
    now = msgspec.json.decode(msgspec.json.encode(fields))
    # Fields of the retry policy that an operator owns are not part of the change.
    known = {**known, "retry": {**now["retry"], **known["retry"]}}
    before = {
        name: known.get(name, value)
        for name, value in now.items()
        if name in data or known.get(name, value) != value
    }
    return {**data, "before": before}
