"""JSON of generated files."""

import inspect
from typing import Any

import msgspec


def formatted(value: Any) -> str:
    """Format a JSON document."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def clean(value: Any) -> Any:
    """Remove the indentation of docstrings, which newer Python versions do not keep."""
    if isinstance(value, dict):
        return {
            key: inspect.cleandoc(part)
            if key == "description" and isinstance(part, str)
            else clean(part)
            for key, part in value.items()
        }
    return [clean(part) for part in value] if isinstance(value, list) else value
