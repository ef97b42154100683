"""Single manifests that are created or changed at run time, in the format of a file."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from headway_decisions.timing.cadence import Manual
from msgspec import structs

from headway.define.declarations import Declarations
from headway.define.defaults import BUILT_IN, Defaults
from headway.define.definitions import (
    API_OWNER,
    Batch,
    Definitions,
    InvalidDefinitions,
    ManifestDefinition,
)
from headway.define.options import FIELDS
from headway.define.runtime_definitions import assembled
from headway.yaml_file import nodes
from headway.yaml_file.nodes import FileReader
from headway.yaml_file.parse import FILTERS, read_file
from headway.yaml_file.records import CADENCES

# Keys of a file whose field in a definition may have another name.
_FIELDS = {**FIELDS, "jitter": "jitter_seconds"}
_OF_TIMING = (*CADENCES, "depends_on", "dormant", *FILTERS, "exclude")


def load_manifest(
    external_id: str, record: Mapping[str, Any], defaults: Defaults = BUILT_IN
) -> Definitions:
    """Return the definitions of a manifest, or raise with all problems at once."""
    file = {
        "app": "at-run-time",
        "jobs": {str(record.get("job")): None},
        "manifests": {external_id: record},
    }
    # JSON is YAML, so the reader of files checks it.
    text = json.dumps(msgspec.to_builtins(file), indent=1)
    return assembled(parse(text, FileReader("")), defaults)


def change_manifest(
    stored: ManifestDefinition, record: Mapping[str, Any], defaults: Defaults = BUILT_IN
) -> Definitions:
    """Return a stored manifest with the changes of a record, or raise with all problems at once.

    A cadence replaces the stored one with its filters and exclusions, but keeps the zone.
    """
    given = {"job": stored.job, **record}
    retimed = any(given.get(name) is not None for name in (*CADENCES, "depends_on"))
    if not retimed:
        _refuse_filters(stored.external_id, record)
        zone = given.pop("tz", None)
        given |= _placeholder(stored)
    elif not isinstance(stored.timing.cadence, Manual) and given.get("depends_on") is None:
        given.setdefault("tz", stored.timing.zone)
    [new] = load_manifest(stored.external_id, given, defaults).manifests
    if retimed:
        timing = {"timing": new.timing, "depends_on": new.depends_on, "dormant": new.dormant}
    else:
        timing = _timing(stored, new, record, zone)
    stated = {_FIELDS.get(key, key) for key in record if key not in _OF_TIMING}
    changed = structs.replace(
        stored,
        **timing,
        **{field: getattr(new, field) for field in stated},
        inherited=tuple(
            field for field in stored.inherited if field not in stated or field == "labels"
        ),
    )
    batches = () if changed.batch is None else (Batch(name=changed.batch, prune=False),)
    return Definitions(owner=API_OWNER, manifests=(changed,), batches=batches)


def parse(text: str, reader: FileReader) -> Declarations:
    """Parse the declarations of a file."""
    try:
        root = nodes.parse(text, reader.report)
    except nodes.Unreadable as error:
        raise InvalidDefinitions([f"{reader.where(error.line)}{error.reason}"]) from error
    return read_file(root, reader)


def _refuse_filters(external_id: str, record: Mapping[str, Any]) -> None:
    stated = [name for name in FILTERS if name != "tz" and record.get(name) is not None]
    if stated:
        named = f"manifest {external_id!r}: {', '.join(stated)}"
        raise InvalidDefinitions([f"{named} belongs to a cadence: add the cadence"])


def _placeholder(stored: ManifestDefinition) -> dict[str, Any]:
    """Return a cadence or a parent of the stored kind, so that terms are checked against it."""
    if stored.depends_on is not None:
        return {"depends_on": stored.depends_on}
    return {"manual": True} if isinstance(stored.timing.cadence, Manual) else {"daily": "00:00"}


def _timing(
    stored: ManifestDefinition, new: ManifestDefinition, record: Mapping[str, Any], zone: Any
) -> dict[str, Any]:
    """Return the timing of a manifest that keeps its cadence, with a new zone or exclusions."""
    timing = stored.timing
    if zone is not None:
        timing = structs.replace(timing, zone=zone)
    if record.get("exclude") is not None:
        timing = structs.replace(timing, exclusions=new.timing.exclusions)
    dormant = new.dormant if "dormant" in record else stored.dormant
    return {"timing": timing, "dormant": dormant}
