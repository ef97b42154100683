"""Check values against the types of their fields, and report every problem at once.

msgspec stops at the first problem. Here each problem has the value and the remedy.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, inspect, structs

_LONGEST_SHOWN = 80
_type_info = lru_cache(maxsize=1024)(inspect.type_info)


class Misfit(NamedTuple):
    """A value that does not fit: the path to its field, and the problem."""

    path: tuple[str, ...]
    problem: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'it'} {self.problem}"


def find_misfits(given: Any, kind: type[Struct], path: tuple[str, ...] = ()) -> list[Misfit]:
    """Check a struct, or a mapping in its place, field by field."""
    misfits: list[Misfit] = []
    if isinstance(given, Mapping) and kind.__struct_config__.forbid_unknown_fields:
        known = kind.__struct_encode_fields__
        misfits += [
            Misfit(path, f"has the unknown field `{name}`: use {', '.join(known)}")
            for name in given
            if name not in known
        ]
    for field in structs.fields(kind):
        name = field.encode_name
        if not isinstance(given, Mapping):
            misfits += _check_value(getattr(given, field.name), field.type, (*path, name))
        elif name in given:
            misfits += _check_value(given[name], field.type, (*path, name))
        elif field.required:
            misfits.append(Misfit((*path, name), f"is missing: use {_wanted(field.type)}"))
    return misfits


def misfits_of(body: bytes, kind: type[Struct]) -> list[str]:
    """Return every problem of a message, one line each; none if it is not an object."""
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return []
    return list(map(str, find_misfits(given, kind))) if isinstance(given, dict) else []


def problem_of(given: Any, kind: Any, *, of: str = "") -> str | None:
    """Return why a value does not fit a type, or `None`; `of` is the name of its field."""
    if isinstance(given, float) and not math.isfinite(given):
        return f"{show(given)} is not valid: use {_wanted(kind, of=of)}"
    try:
        # Through JSON, because values are sent and stored as JSON.
        msgspec.json.decode(msgspec.json.encode(given), type=kind)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        # In a collection, only msgspec knows which item is wrong.
        is_collection = any(
            isinstance(info, inspect.DictType | inspect.ListType | inspect.VarTupleType)
            for info in options_of(kind)
        )
        remedy = str(error) if is_collection else f"use {_wanted(kind, of=of)}"
        return f"{show(given)} is not valid: {remedy}"
    return None


def options_of(kind: Any) -> list[inspect.Type]:
    """Return the types that a type or union allows, without their metadata."""
    info = _type_info(kind)
    info = info.type if isinstance(info, inspect.Metadata) else info
    types = info.types if isinstance(info, inspect.UnionType) else (info,)
    return [option.type if isinstance(option, inspect.Metadata) else option for option in types]


def show(given: Any) -> str:
    """Format a value, cut to a readable length."""
    try:
        shown = repr(given)
    except (ValueError, RecursionError):
        # Python refuses to format numbers of thousands of digits.
        return f"of type {type(given).__name__}"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def _check_value(given: Any, kind: Any, path: tuple[str, ...]) -> list[Misfit]:
    inner = [info for info in options_of(kind) if isinstance(info, inspect.StructType)]
    # Several structs would be told apart by their tags.
    if len(inner) == 1 and isinstance(given, Mapping | inner[0].cls):
        return find_misfits(given, inner[0].cls, path)
    problem = problem_of(given, kind, of=path[-1])
    return [] if problem is None else [Misfit(path, problem)]


def _wanted(kind: Any, *, of: str = "") -> str:
    """Describe the values that fit a type."""
    return _describe(_type_info(kind), " of seconds" if of.endswith("_seconds") else "")


def _describe(info: inspect.Type, unit: str = "") -> str:
    match info:
        case inspect.Metadata():
            return _describe(info.type, unit) + _examples(info.extra_json_schema or {})
        case inspect.UnionType():
            options = [option for option in info.types if not isinstance(option, inspect.NoneType)]
            return " or ".join(_describe(option, unit) for option in options)
        case inspect.IntType():
            return f"a whole number{unit}{_bounds(info)}"
        case inspect.FloatType():
            return f"a number{unit}{_bounds(info)}"
        case inspect.ListType() | inspect.VarTupleType():
            return f"a list of {_describe(info.item_type)}"
        case inspect.StructType():
            needed = [field.encode_name for field in info.fields if field.required]
            return f"a mapping with {', '.join(needed)}" if needed else "a mapping"
        case inspect.StrType():
            return "text" + (f" of up to {info.max_length} letters" if info.max_length else "")
        case inspect.LiteralType():
            return " or ".join(map(repr, info.values))
    names = {
        inspect.BoolType: "true or false",
        inspect.DictType: "a mapping",
        inspect.UUIDType: "a UUID",
        inspect.DateTimeType: "a time such as 2027-03-28T03:15:00Z",
    }
    return names.get(type(info), "something else")


def _examples(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f" ({', '.join(schema['enum'])})"
    return f" such as {schema['examples'][0]!r}" if schema.get("examples") else ""


def _bounds(info: inspect.IntType | inspect.FloatType) -> str:
    lowest, above, highest = (
        "" if bound is None else str(bound).removesuffix(".0")
        for bound in (info.ge, info.gt, info.le)
    )
    if lowest:
        return f" from {lowest} to {highest}" if highest else f" from {lowest} on"
    if above:
        return f" above {above}, up to {highest}" if highest else f" above {above}"
    return f" up to {highest}" if highest else ""
