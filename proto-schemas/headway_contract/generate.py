"""Writes the generated files, or checks that they are up to date.

python -m headway_contract.generate            write them
python -m headway_contract.generate --check    fail if they have drifted
"""

import inspect
import sys
from pathlib import Path
from typing import Any

import msgspec

from headway_contract import asyncapi
from headway_contract.registry import CONTROL, EVENTS, NOTIFICATIONS

_ROOT = Path(__file__).parent.parent
FOLDER = _ROOT / "schemas"
DOCUMENT = _ROOT / "asyncapi.json"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, bytes]:
    """Every generated file by its name."""
    files = {f"{struct.type}.json": _event_schema(struct) for struct in (*EVENTS, *NOTIFICATIONS)}
    files |= {f"{name}.json": _control_schema(name, struct) for name, struct in CONTROL.items()}
    return {name: _formatted(_tidy(schema)) for name, schema in sorted(files.items())}


def _formatted(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


def _tidy(schema: Any) -> Any:
    """Docstrings without their indentation, which newer Pythons drop by themselves."""
    if isinstance(schema, dict):
        return {
            key: inspect.cleandoc(value)
            if key == "description" and isinstance(value, str)
            else _tidy(value)
            for key, value in schema.items()
        }
    return [_tidy(one) for one in schema] if isinstance(schema, list) else schema


def _event_schema(struct: Any) -> dict[str, Any]:
    """The schema of one type of event in its envelope."""
    data = msgspec.json.schema(struct)
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
    schema = msgspec.json.schema(struct)
    return {"$schema": _DIALECT, "title": name, **schema}


def drifted() -> list[str]:
    """Names of files that are missing, stale or not generated."""
    wanted = {**schemas(), DOCUMENT.name: _formatted(asyncapi.document())}
    generated = [*FOLDER.glob("*.json"), *_ROOT.glob(DOCUMENT.name)]
    found = {path.name: path.read_bytes() for path in generated}
    return sorted(
        name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name)
    )


def main(arguments: list[str]) -> int:
    """Write or check."""
    if "--check" in arguments:
        stale = drifted()
        if stale:
            sys.stderr.write(f"generated files have drifted: {', '.join(stale)}\n")
            sys.stderr.write("run './justw generate' and commit the result\n")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    wanted = schemas()
    for path in FOLDER.glob("*.json"):
        if path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (FOLDER / name).write_bytes(content)
    DOCUMENT.write_bytes(_formatted(asyncapi.document()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
