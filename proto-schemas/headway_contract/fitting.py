"""Check values against the types of their fields, and report every problem at once.

msgspec stops at the first problem. Here each problem has the value and the remedy.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct, inspect, structs

_MISSING: Any = object()
_LONGEST_SHOWN = 80
_SECONDS = "_seconds"


class Misfit(NamedTuple):
    """A value that does not fit: the path to its field, and the problem."""

    path: tuple[str, ...]
    problem: str

    def __str__(self) -> str:
        return f"{'.'.join(self.path) or 'it'} {self.problem}"


class Fitted(NamedTuple):
    """The struct without the values that do not fit, or `None`; and the misfits."""

    value: Any
    misfits: list[Misfit]


def fit(given: Any, kind: type[Struct], path: tuple[str, ...] = ()) -> Fitted:
    """Check a struct, or a mapping in its place, field by field."""
    if not isinstance(given, Mapping | kind):
        return Fitted(None, [Misfit(path, f"{show(given)} is not valid: use a mapping")])
    found: dict[str, Any] = {}
    misfits = list(_strangers(given, kind, path))
    lacks = False
    for field in structs.fields(kind):
        value = _of(given, field)
        there = (*path, field.encode_name)
        if value is _MISSING:
            if field.required:
                misfits.append(Misfit(there, f"is missing: use {wanted(field.type)}"))
        else:
            read = _fit_value(value, field.type, there)
            misfits += read.misfits
            if not read.misfits or read.value is not None:
                found[field.name] = read.value
        lacks = lacks or (field.required and field.name not in found)
    return Fitted(None if lacks else kind(**found), misfits)


def misfits_of(body: bytes, kind: type[Struct]) -> list[str]:
    """Return every problem of a message, one line each; none if it is not an object."""
    try:
        given = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return []
    return list(map(str, fit(given, kind).misfits)) if isinstance(given, dict) else []


def problem_of(given: Any, kind: Any, *, of: str = "") -> str | None:
    """Return why a value does not fit a type, or `None`; `of` is the name of its field."""
    if isinstance(given, float) and not math.isfinite(given):
        return f"{show(given)} is not valid: use {wanted(kind, of=of)}"
    try:
        # Through JSON, because values are sent and stored as JSON.
        msgspec.json.decode(msgspec.json.encode(given), type=kind)
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        return f"{show(given)} is not valid: {_remedy(error, kind, of)}"
    return None


def wanted(kind: Any, *, of: str = "") -> str:
    """Describe the values that fit a type."""
    return _words(_type_info(kind), " of seconds" if of.endswith(_SECONDS) else "")


def show(given: Any) -> str:
    """Format a value, cut to a readable length."""
    try:
        shown = repr(given)
    except (ValueError, RecursionError):
        # Python refuses to format numbers of thousands of digits.
        return f"of type {type(given).__name__}"
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}…"


def _of(given: Any, field: structs.FieldInfo) -> Any:
    if isinstance(given, Mapping):
        return given.get(field.encode_name, _MISSING)
    return getattr(given, field.name)


def _strangers(given: Any, kind: type[Struct], path: tuple[str, ...]) -> Iterable[Misfit]:
    if not isinstance(given, Mapping) or not kind.__struct_config__.forbid_unknown_fields:
        return
    known = kind.__struct_encode_fields__
    for name in given:
        if name not in known:
            yield Misfit(path, f"has the unknown field `{name}`: use {', '.join(known)}")


def _fit_value(given: Any, kind: Any, path: tuple[str, ...]) -> Fitted:
    inner = _struct_in(kind)
    if inner is not None and isinstance(given, Mapping | inner):
        return fit(given, inner, path)
    problem = problem_of(given, kind, of=path[-1])
    if problem is not None:
        return Fitted(None, [Misfit(path, problem)])
    return Fitted(msgspec.json.decode(msgspec.json.encode(given), type=kind), [])


@lru_cache(maxsize=1024)
def _type_info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _struct_in(kind: Any) -> type[Struct] | None:
    """Return the only struct in a type; `None` if there are several, which have tags."""
    found = [info for info in _options(_type_info(kind)) if isinstance(info, inspect.StructType)]
    return found[0].cls if len(found) == 1 else None


def _options(info: inspect.Type) -> list[inspect.Type]:
    if isinstance(info, inspect.Metadata):
        return _options(info.type)
    several = info.types if isinstance(info, inspect.UnionType) else (info,)
    return [option.type if isinstance(option, inspect.Metadata) else option for option in several]


def _remedy(error: Exception, kind: Any, of: str) -> str:
    """Return the remedy; in a collection only msgspec knows which item is wrong."""
    holds_several = (inspect.DictType, inspect.ListType, inspect.VarTupleType)
    if any(isinstance(info, holds_several) for info in _options(_type_info(kind))):
        return str(error)
    return f"use {wanted(kind, of=of)}"


def _words(info: inspect.Type, unit: str = "") -> str:
    match info:
        case inspect.Metadata():
            return _words(info.type, unit) + _examples(info.extra_json_schema or {})
        case inspect.UnionType():
            options = [option for option in info.types if not isinstance(option, inspect.NoneType)]
            return " or ".join(_words(option, unit) for option in options)
        case inspect.IntType():
            return f"a whole number{unit}{_bounds(info)}"
        case inspect.FloatType():
            return f"a number{unit}{_bounds(info)}"
        case inspect.ListType() | inspect.VarTupleType():
            return f"a list of {_words(info.item_type)}"
        case inspect.StructType():
            needed = [field.encode_name for field in info.fields if field.required]
            return f"a mapping with {', '.join(needed)}" if needed else "a mapping"
    return _plain_words(info)


def _plain_words(info: inspect.Type) -> str:
    match info:
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "text" + (f" of up to {info.max_length} letters" if info.max_length else "")
        case inspect.LiteralType():
            return " or ".join(repr(value) for value in info.values)
        case inspect.DictType():
            return "a mapping"
    return "something else"


def _examples(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return f" ({', '.join(schema['enum'])})"
    return f" such as {schema['examples'][0]!r}" if schema.get("examples") else ""


def _bounds(info: inspect.IntType | inspect.FloatType) -> str:
    lowest, above, highest = (_number(bound) for bound in (info.ge, info.gt, info.le))
    if lowest:
        return f" from {lowest} to {highest}" if highest else f" from {lowest} on"
    if above:
        return f" above {above}, up to {highest}" if highest else f" above {above}"
    return f" up to {highest}" if highest else ""


def _number(bound: float | None) -> str:
    if bound is None:
        return ""
    return str(int(bound)) if float(bound).is_integer() else str(bound)
