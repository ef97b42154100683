"""The JSON Schema of YAML files, for editors."""

from pathlib import Path
from typing import Any

import msgspec
from headway.yaml_file.records import CADENCES, FileRecord

from generators.json_text import clean, formatted

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def files(_root: Path) -> dict[Path, str]:
    """Make the file."""
    return {Path("docs/definitions.schema.json"): formatted(schema())}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a file of definitions."""
    made = clean(msgspec.json.schema(FileRecord))
    definitions = made["$defs"]
    root = definitions.pop("FileRecord")
    root["patternProperties"] = {"^x-": {"description": "Custom keys, for anchors."}}
    for name in ("groups", "jobs", "manifests", "batches"):
        # A section may be empty.
        stated = root["properties"][name]
        root["properties"][name] = {"anyOf": [stated, {"type": "null"}]}
    _require_cadence(definitions)
    _constrain_keys(definitions)
    return {
        "$schema": _DIALECT,
        **root,
        "title": "Headway definitions",
        "$defs": definitions,
    }


def _require_cadence(definitions: dict[str, Any]) -> None:
    """Require one cadence or a parent for a manifest, and for a batch or each of its items."""
    one_of = [_has(name) for name in (*CADENCES, "depends_on")]
    none = {"not": {"anyOf": one_of}}
    each_has = {
        "properties": {"items": {"type": "array", "minItems": 1, "items": {"oneOf": one_of}}}
    }
    definitions["ManifestRecord"]["oneOf"] = one_of
    definitions["ItemRecord"]["oneOf"] = [*one_of, none]
    definitions["BatchRecord"]["oneOf"] = [*one_of, {**none, **each_has}]


def _constrain_keys(definitions: dict[str, Any]) -> None:
    """Add the constraints between keys."""
    for name in ("EveryRecord", "SpacedRecord"):
        definitions[name]["anyOf"] = [
            {"required": [unit], "properties": {unit: {"type": "number", "exclusiveMinimum": 0}}}
            for unit in ("seconds", "minutes", "hours", "days")
        ]
    manifest, job = definitions["ManifestRecord"], definitions["JobRecord"]
    no_times = {"anyOf": [_has("manual"), _has("depends_on")]}
    nothing = {name: {"type": "null"} for name in ("jitter", "misfire", "exclude")}
    manifest["allOf"] = [
        {"if": no_times, "then": {"properties": nothing}},
        {
            "if": {"required": ["dormant"], "properties": {"dormant": {"const": True}}},
            "then": _has("depends_on"),
        },
    ]
    job["if"] = {"required": ["takes_input"], "properties": {"takes_input": {"const": False}}}
    job["then"] = {"properties": {"input_schema": {"type": "null"}}}


def _has(name: str) -> dict[str, Any]:
    """Return a schema that requires a key with a value."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
