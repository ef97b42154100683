"""Writes the JSON Schema that editors help with, or checks that it is up to date.

python -m headway.yaml_file.schema PATH            write it
python -m headway.yaml_file.schema PATH --check    fail if it has drifted
"""

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from headway.yaml_file.records import CADENCES, FileRecord

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> dict[str, Any]:
    """The JSON Schema of a file of definitions."""
    made = _tidy(msgspec.json.schema(FileRecord))
    definitions = made["$defs"]
    root = definitions.pop("FileRecord")
    root["patternProperties"] = {"^x-": {"description": "Your own, for anchors to stand on."}}
    for name in ("groups", "jobs", "manifests", "batches"):
        # A heading with nothing below it.
        stated = root["properties"][name]
        root["properties"][name] = {"anyOf": [stated, {"type": "null"}]}
    _state_cadences(definitions)
    _state_what_goes_together(definitions)
    return {
        "$schema": _DIALECT,
        **root,
        "title": "Headway definitions",
        "$defs": definitions,
    }


def _state_cadences(definitions: dict[str, Any]) -> None:
    """A manifest has one cadence or a parent; of a batch each item has, if the batch has none."""
    one_of = [_stated(name) for name in (*CADENCES, "depends_on")]
    none = {"not": {"anyOf": one_of}}
    each_has = {
        "properties": {"items": {"type": "array", "minItems": 1, "items": {"oneOf": one_of}}}
    }
    definitions["ManifestRecord"]["oneOf"] = one_of
    definitions["ItemRecord"]["oneOf"] = [*one_of, none]
    definitions["BatchRecord"]["oneOf"] = [*one_of, {**none, **each_has}]


def _state_what_goes_together(definitions: dict[str, Any]) -> None:
    """What one key says about others."""
    for name in ("EveryRecord", "SpacedRecord"):
        definitions[name]["anyOf"] = [
            {"required": [unit], "properties": {unit: {"type": "number", "exclusiveMinimum": 0}}}
            for unit in ("seconds", "minutes", "hours", "days")
        ]
    manifest, job = definitions["ManifestRecord"], definitions["JobRecord"]
    no_times = {"anyOf": [_stated("manual"), _stated("depends_on")]}
    nothing = {name: {"type": "null"} for name in ("jitter", "misfire", "exclude")}
    manifest["allOf"] = [
        {"if": no_times, "then": {"properties": nothing}},
        {
            "if": {"required": ["dormant"], "properties": {"dormant": {"const": True}}},
            "then": _stated("depends_on"),
        },
    ]
    job["if"] = {"required": ["takes_input"], "properties": {"takes_input": {"const": False}}}
    job["then"] = {"properties": {"input_schema": {"type": "null"}}}


def _stated(name: str) -> dict[str, Any]:
    """That a key is there, with something behind it."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _tidy(value: Any) -> Any:
    """Docstrings without their indentation, which newer Pythons drop by themselves."""
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(one)
            if key == "description" and isinstance(one, str)
            else _tidy(one)
            for key, one in value.items()
        }
    return [_tidy(one) for one in value] if isinstance(value, list) else value


def rendered() -> bytes:
    """The file's content."""
    return msgspec.json.format(msgspec.json.encode(schema()), indent=2) + b"\n"


def main(arguments: list[str]) -> int:
    """Write or check."""
    path = Path(next(one for one in arguments if one != "--check"))
    if "--check" not in arguments:
        path.write_bytes(rendered())
        return 0
    if path.is_file() and path.read_bytes() == rendered():
        return 0
    sys.stderr.write(f"{path} has drifted: run './justw generate' and commit the result\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
