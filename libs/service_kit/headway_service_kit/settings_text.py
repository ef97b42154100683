"""What settings there are: read from the structs that hold them, for pages and commands."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo, replace

from headway_service_kit import settings
from headway_service_kit.settings import InvalidSettings, Source

_UNITS = {"_seconds": "s", "_hours": "h", "_days": "days", "_bytes": "bytes"}
_HIDDEN = "*****"
# Several URLs stand with commas between them; a comma alone may be part of a password.
_NEXT_URL = re.compile(r",(?=\s*\w+://)")
_PARAMETER = re.compile(r"([?&](?:ssl)?password=)[^&]*")


class Described(Struct, frozen=True, kw_only=True):
    """A setting in words."""

    variable: str
    default: str
    unit: str
    values: str
    description: str


class Effective(Struct, frozen=True, kw_only=True):
    """What holds for a setting here and now, and who says so; secrets are masked."""

    variable: str
    value: Any
    source: Source | None
    description: str
    problem: str | None = None


def describe(struct: type[Struct]) -> list[Described]:
    """The settings of a struct, in their order."""
    return [
        Described(
            variable=settings.variable_of(field.name),
            default="required" if field.required else in_words(field.default),
            unit=_unit(field),
            values=_values(field),
            description=_description(field),
        )
        for field in msgspec.structs.fields(struct)
    ]


def look(struct: type[Struct], environment: Mapping[str, str]) -> list[Effective]:
    """What holds for every setting of a struct."""
    return [_look(field, environment) for field in msgspec.structs.fields(struct)]


def holding(values: Struct, environment: Mapping[str, str]) -> list[Effective]:
    """What holds in a process that runs, and who says so: what its environment does not, a flag."""
    return [
        _holding(field, getattr(values, field.name), _look(field, environment))
        for field in msgspec.structs.fields(type(values))
    ]


class Told(Struct, frozen=True, kw_only=True):
    """The same for somebody far away: its value in words."""

    variable: str
    value: str
    source: str | None
    description: str


def told_by(values: Struct, environment: Mapping[str, str]) -> list[Told]:
    """What holds in a process that runs, in words."""
    return [
        Told(
            variable=one.variable,
            value=in_words(one.value),
            source=one.source,
            description=one.description,
        )
        for one in holding(values, environment)
    ]


def _holding(field: FieldInfo, value: Any, told: Effective) -> Effective:
    shown = mask(value) if isinstance(value, str) else value
    if _is_secret(field) and value is not None:
        shown = _HIDDEN
    is_told = told.problem is None and told.value == shown
    return replace(told, value=shown, source=told.source if is_told else "flag", problem=None)


def mask(text: str) -> str:
    """A text without the secrets of any URL in it; too much is hidden rather than too little."""
    found = ",".join(map(_mask, _NEXT_URL.split(text)))
    return _PARAMETER.sub(rf"\1{_HIDDEN}", found)


def in_words(value: Any) -> str:
    """A value as a user would write it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "1" if value else "0"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _look(field: FieldInfo, environment: Mapping[str, str]) -> Effective:
    variable, about = settings.variable_of(field.name), _description(field)
    try:
        found = settings.find(environment, field.name)
        if found is not None:
            value = settings.convert(field, found.raw)
            shown = mask(value) if isinstance(value, str) else value
            if _is_secret(field):
                shown = _HIDDEN
            return Effective(variable=variable, value=shown, source=found.source, description=about)
    except InvalidSettings as error:
        problem = mask(str(error)).removeprefix(f"{variable}=")
        return Effective(
            variable=variable, value=None, source=None, description=about, problem=problem
        )
    if field.required:
        return Effective(
            variable=variable, value=None, source=None, description=about, problem="not set"
        )
    return Effective(variable=variable, value=field.default, source="default", description=about)


def _mask(url: str) -> str:
    secret, at, where = url.rpartition("@")
    if not at:
        return url
    scheme, slashes, secret = secret.rpartition("://")
    user, colon, _ = secret.partition(":")
    # A token for NATS stands where a user would, without a colon: that is the secret then.
    shown = f"{user}:{_HIDDEN}" if colon else _HIDDEN
    return f"{scheme}{slashes}{shown}@{where}"


def _unit(field: FieldInfo) -> str:
    found = (unit for ending, unit in _UNITS.items() if field.name.endswith(ending))
    return next(found, "")


def _description(field: FieldInfo) -> str:
    found = msgspec.inspect.type_info(field.type)
    extra = found.extra_json_schema if isinstance(found, msgspec.inspect.Metadata) else None
    return str((extra or {}).get("description", ""))


def _is_secret(field: FieldInfo) -> bool:
    found = msgspec.inspect.type_info(field.type)
    extra = found.extra if isinstance(found, msgspec.inspect.Metadata) else None
    return bool((extra or {}).get("secret"))


def _values(field: FieldInfo) -> str:
    """The values that it takes, in a few words."""
    found = msgspec.inspect.type_info(field.type)
    if isinstance(found, msgspec.inspect.Metadata):
        found = found.type
    kinds = found.types if isinstance(found, msgspec.inspect.UnionType) else (found,)
    told = [words for kind in kinds if (words := _kind(kind))]
    lifted = ["`none`"] if settings.may_be_lifted(field) else []
    return " or ".join([*told, *lifted])


def _kind(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.LiteralType(values=values):
            return ", ".join(f"`{one}`" for one in values)
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            limits = [
                f"{sign} {in_words(limit)}"
                for sign, limit in ((">", kind.gt), ("≥", kind.ge), ("<", kind.lt), ("≤", kind.le))
                if limit is not None
            ]
            return " and ".join(limits) or "a number"
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.BoolType():
            return "`0`, `1`"
    return ""
