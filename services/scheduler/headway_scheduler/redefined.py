"""What the audit tells of a declaration: the definition, and what it was before."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec
from headway.definitions import ManifestDefinition
from headway_postgres_kit import Connection

from headway_scheduler.finding import queries

# The columns that a definition is made of.
DEFINED = (
    "external_id",
    "job",
    "input",
    "timing",
    "misfire",
    "overlap",
    "jitter_seconds",
    "priority",
    "retry",
    "timeout_seconds",
    "cancel_grace_seconds",
    "on_lost_contact",
    "concurrency_key",
    "concurrency_limit",
    "start_within_seconds",
    "on_dead_letter",
    "enabled",
    "dormant",
    "batch",
    "labels",
)
# What operators may have taken over, and the field that it is.
_TOUCHED = {"enabled": "enabled", "retry": "retry", "jitter": "jitter_seconds"}


def definition_of(row: Any) -> dict[str, Any]:
    """A manifest as it is stored, in the shape in which it is declared."""
    definition = {name: row[name] for name in DEFINED}
    return {**definition, "group": row["group_name"], "depends_on": row["parent"]}


async def stored_definitions(connection: Connection, ids: Sequence[UUID]) -> dict[str, Any]:
    """Manifests as they are, by their external ids, but for what is not the code's to change."""
    if not ids:
        return {}
    found = {}
    for row in await connection.fetch(queries["definitions_of"], ids):
        kept = {_TOUCHED[name] for name in row["touched"]}
        if row["disabled_by"] not in (None, "code"):
            kept.add("enabled")
        found[row["external_id"]] = {
            name: value for name, value in definition_of(row).items() if name not in kept
        }
    return found


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
    before = {
        name: known.get(name, value)
        for name, value in now.items()
        if name in data or known.get(name, value) != value
    }
    return {**data, "before": before}
