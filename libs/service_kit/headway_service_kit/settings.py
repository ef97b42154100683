"""Settings: environment and flags, read once into a frozen struct.

A field `orphan_timeout_seconds` of a settings struct is read from the environment
variable `HEADWAY_ORPHAN_TIMEOUT_SECONDS`, or from the file that
`HEADWAY_ORPHAN_TIMEOUT_SECONDS_FILE` names, which is how secrets are best given. All
problems are reported together.
"""

from collections.abc import Mapping
from pathlib import Path
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
        try:
            raw: Any = overrides.get(field.name)
            raw = given(environment, field.name) if raw is None else raw
        except InvalidSettings as error:
            problems.append(str(error))
            continue
        if raw is None and field.required:
            problems.append(f"{variable} is not set")
        if raw is None:
            continue
        try:
            values[field.name] = msgspec.convert(raw, field.type, strict=False)
        except msgspec.ValidationError as error:
            problems.append(f"{variable}={raw!r}: {error}")
    if problems:
        raise InvalidSettings("; ".join(problems))
    return struct(**values)


def given(environment: Mapping[str, str], name: str) -> str | None:
    """What the environment says about a setting, itself or in a file that it names."""
    variable = PREFIX + name.upper()
    path = environment.get(f"{variable}_FILE")
    if environment.get(variable) or not path:
        return environment.get(variable) or None
    try:
        return Path(path).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise InvalidSettings(f"{variable}_FILE: {path!r} cannot be read: {reason}") from error
