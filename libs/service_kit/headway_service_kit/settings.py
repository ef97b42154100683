"""Settings: environment and flags, read once into a frozen struct.

A field `orphan_timeout_seconds` of a settings struct is read from the environment
variable `HEADWAY_ORPHAN_TIMEOUT_SECONDS`. All problems are reported together.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

PREFIX = "HEADWAY_"

Settings = TypeVar("Settings", bound=msgspec.Struct)


class InvalidSettings(Exception):
    """One or more settings are missing or cannot be read."""


def read(struct: type[Settings], environment: Mapping[str, str], **overrides: Any) -> Settings:
    """Fill the struct from overrides (flags) first, then the environment, then defaults."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for field in msgspec.structs.fields(struct):
        variable = PREFIX + field.name.upper()
        if overrides.get(field.name) is not None:
            raw: Any = overrides[field.name]
        elif environment.get(variable):
            raw = environment[variable]
        elif field.required:
            problems.append(f"{variable} is not set")
            continue
        else:
            continue
        try:
            values[field.name] = msgspec.convert(raw, field.type, strict=False)
        except msgspec.ValidationError as error:
            problems.append(f"{variable}={raw!r}: {error}")
    if problems:
        raise InvalidSettings("; ".join(problems))
    return struct(**values)
