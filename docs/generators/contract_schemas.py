"""The JSON Schemas of events and requests, with comments on fields, and the AsyncAPI document."""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from headway_contract.registry import EVENTS, NOTIFICATIONS
from msgspec import Struct

from generators import asyncapi
from generators.field_comments import describe_fields
from generators.json_text import clean, formatted
from generators.message_names import CONTROL

FOLDER = Path("proto-schemas/schemas")
DOCUMENT = Path("proto-schemas/asyncapi.json")
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def files(_root: Path) -> dict[Path, str]:
    """Make a file for each type, and the document."""
    schemas = {struct.type: _event_schema(struct) for struct in (*EVENTS, *NOTIFICATIONS)}
    schemas |= {name: _control_schema(name, struct) for name, struct in CONTROL.items()}
    found = {FOLDER / f"{name}.json": formatted(clean(schemas[name])) for name in sorted(schemas)}
    return {**found, DOCUMENT: formatted(asyncapi.document())}


def _event_schema(struct: Any) -> dict[str, Any]:
    """Make the schema of an event in its envelope."""
    data = _schema(struct)
    return {
        "$schema": _DIALECT,
        "title": struct.type,
        "description": struct.__doc__,
        "type": "object",
        "required": ["specversion", "id", "source", "type", "subject", "time", "data"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1},
            "source": {"type": "string", "minLength": 1},
            "type": {"const": struct.type},
            "subject": {"type": "string"},
            "time": {"type": "string", "format": "date-time"},
            "datacontenttype": {"const": "application/json"},
            "traceparent": {"type": "string"},
            "data": {"$ref": data["$ref"]},
        },
        "$defs": data["$defs"],
    }


def _control_schema(name: str, struct: Any) -> dict[str, Any]:
    return {"$schema": _DIALECT, "title": name, **_schema(struct)}


def _schema(struct: type[Struct]) -> dict[str, Any]:
    return describe_fields(msgspec.json.schema(struct), _structs())


@cache
def _structs() -> dict[str, type[Struct]]:
    """Return the structs of the contract by name."""
    modules = [
        module for name, module in sys.modules.items() if name.startswith("headway_contract")
    ]
    return {
        name: found
        for module in modules
        for name, found in vars(module).items()
        if isinstance(found, type) and issubclass(found, Struct)
    }
