"""Settings as text: the values in effect with their sources."""

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, inspect
from msgspec.structs import FieldInfo, replace

from headway_service_kit import settings
from headway_service_kit.settings import InvalidSettings

Source = Literal["flag", "environment", "file", "default"]

_HIDDEN = "*****"
# Separates URLs in a list; a comma alone may be part of a password.
_NEXT_URL = re.compile(r",(?=\s*\w+://)")
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)[^&]*")


class Effective(Struct, frozen=True, kw_only=True):
    """The value of a setting in this process, and its source; secrets are masked."""

    variable: str
    value: Any = None
    source: Source | None = None
    description: str
    problem: str | None = None


def look(
    struct: type[Struct],
    environment: Mapping[str, str],
    checks: Mapping[str, settings.Check] = settings.NO_CHECKS,
) -> list[Effective]:
    """Return the settings that an environment gives a struct."""
    return [_look(field, environment, checks) for field in msgspec.structs.fields(struct)]


def settings_in_effect(values: Struct, environment: Mapping[str, str]) -> list[Effective]:
    """Return the settings of a process as text; a flag set those that the environment did not."""
    found = []
    for field in msgspec.structs.fields(type(values)):
        seen, shown = _look(field, environment, {}), _mask(field, getattr(values, field.name))
        is_same = seen.problem is None and seen.value == shown
        source = seen.source if is_same else "flag"
        found.append(replace(seen, value=in_words(shown), source=source, problem=None))
    return found


def mask(text: str) -> str:
    """Hide the secrets of all URLs in a text; hides too much rather than too little."""
    found = ",".join(map(_mask_url, _NEXT_URL.split(text)))
    return _PARAMETER.sub(rf"\1{_HIDDEN}", found)


def in_words(value: Any) -> str:
    """Return a value as a user would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _look(
    field: FieldInfo, environment: Mapping[str, str], checks: Mapping[str, settings.Check]
) -> Effective:
    variable = settings.variable_of(field.name)
    unset = Effective(variable=variable, description=_description(field))
    try:
        text = settings.lookup(environment, field.name)
        if text is not None:
            value = _mask(field, settings.convert(field, text))
            source: Source = "environment" if environment.get(variable) else "file"
            problem = checks[field.name](text) if field.name in checks else None
            return replace(unset, value=value, source=source, problem=problem)
    except InvalidSettings as error:
        return replace(unset, problem=mask(str(error)).removeprefix(f"{variable}="))
    if field.required:
        return replace(unset, problem="not set")
    return replace(unset, value=field.default, source="default")


def _mask(field: FieldInfo, value: Any) -> Any:
    """Return a value without its secrets."""
    found = inspect.type_info(field.type)
    extra = found.extra if isinstance(found, inspect.Metadata) else None
    if (extra or {}).get("secret") and value is not None:
        return _HIDDEN
    return mask(value) if isinstance(value, str) else value


def _mask_url(url: str) -> str:
    secret, at, where = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, secret = secret.rpartition("://")
    user, colon, _ = secret.partition(":")
    # Without a colon, the part before the @ is a token for NATS.
    shown = f"{user}:{_HIDDEN}" if colon else _HIDDEN
    return f"{scheme}{slashes}{shown}@{where}"


def _description(field: FieldInfo) -> str:
    found = inspect.type_info(field.type)
    extra = found.extra_json_schema if isinstance(found, inspect.Metadata) else None
    return str((extra or {}).get("description", ""))
