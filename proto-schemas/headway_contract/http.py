"""Read the question of a route from an HTTP request."""

import functools
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import NODEFAULT, Meta, Struct, inspect, structs

from headway_contract.fitting import fit
from headway_contract.routes import WITHOUT_BODY, Route

_ACTOR = "actor"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# A time without an offset could mean anything, so no request may bring one.
_Aware = Annotated[datetime, Meta(tz=True)]
_AWARE: dict[Any, Any] = {datetime: _Aware, datetime | None: _Aware | None}
_MOMENT = re.compile(r"\d{4}-")
_WHERE = re.compile(r" - at `\$\.?([^`]*)`$")


class InvalidRequest(ValueError):
    """A request that does not fit its route; the text says where and why."""


class Shape(Struct, frozen=True, kw_only=True):
    """What of a question stands where in a request: types made of its fields."""

    path: type[Struct]
    query: type[Struct]
    body: type[Struct] | None


def path_fields(route: Route) -> list[str]:
    """The fields that the path names."""
    return _PLACEHOLDER.findall(route.path)


@functools.cache
def shape_of(route: Route) -> Shape:
    """The types of the path, the query and the body of a route."""
    named = set(path_fields(route))
    rest = [
        field
        for field in structs.fields(route.question)
        if field.name not in named | {_ACTOR, *route.hidden}
    ]
    made = _words(route)
    path = [one for one in structs.fields(route.question) if one.name in named]
    in_body = route.method not in WITHOUT_BODY
    return Shape(
        path=_struct(f"{made}Path", [_must(one) for one in path]),
        query=_struct(f"{made}Query", [] if in_body else [_entry(field) for field in rest]),
        body=_struct(f"{made}Body", [_entry(one) for one in rest]) if in_body else None,
    )


def read(
    route: Route,
    *,
    path: Mapping[str, str],
    query: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
    actor: str = "",
) -> Any:
    """The question that a request asks; raises `InvalidRequest` if it does not fit."""
    shape = shape_of(route)
    try:
        found = _plain(msgspec.convert(dict(path), shape.path, strict=False))
        found |= _plain(msgspec.convert(_collected(shape.query, query), shape.query, strict=False))
        if shape.body is not None:
            found |= _read_body(route, shape.body, body or b"{}")
    except msgspec.ValidationError as error:
        raise InvalidRequest(_told(error)) from error
    except RecursionError as error:
        raise InvalidRequest("the body is nested too deeply: send fewer levels") from error
    if _ACTOR in route.question.__struct_fields__:
        found[_ACTOR] = actor
    return route.question(**found)


def _read_body(route: Route, kind: type[Struct], body: bytes) -> dict[str, Any]:
    """The fields of a body; all that does not fit is told at once, unless its handler will."""
    if not route.handler_checks:
        try:
            return _plain(msgspec.json.decode(body, type=kind))
        except msgspec.ValidationError as error:
            given = msgspec.json.decode(body)
            wrong = fit(given, kind).misfits if isinstance(given, dict) else []
            raise InvalidRequest("\n".join(map(str, wrong)) or _told(error)) from error
    given = msgspec.json.decode(body, type=dict[str, Any])
    shaped = fit(dict.fromkeys(given), kind)
    wrong = [one for one in shaped.misfits if not one.path or one.path[0] not in given]
    if wrong:
        raise InvalidRequest("\n".join(map(str, wrong)))
    return given


def _words(route: Route) -> str:
    return "".join(word.capitalize() for word in route.name.split("_"))


def _struct(name: str, fields: list[Any]) -> type[Struct]:
    return msgspec.defstruct(name, fields, kw_only=True, frozen=True, forbid_unknown_fields=True)


def _must(field: structs.FieldInfo) -> Any:
    """A field that is always there; none is no part of a path."""
    kind = field.type
    options = [one for one in getattr(kind, "__args__", ()) if one is not type(None)]
    is_optional = type(None) in getattr(kind, "__args__", ())
    return (field.name, options[0] if is_optional else kind)


def _entry(field: structs.FieldInfo) -> Any:
    kind = _AWARE.get(field.type, field.type)
    if field.required:
        return (field.encode_name, kind)
    if field.default_factory is not NODEFAULT:
        return (field.encode_name, kind, msgspec.field(default_factory=field.default_factory))
    return (field.encode_name, kind, field.default)


def _collected(kind: type[Struct], query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Parameters by name; those that may come more than once as lists."""
    lists = _list_fields(kind)
    found: dict[str, Any] = {}
    for name, value in query:
        if name in lists:
            found.setdefault(name, []).append(value)
        elif name in found:
            raise InvalidRequest(f"{name}: it is there more than once")
        elif value.lower() == "null" and name in _fields_without_text(kind):
            raise InvalidRequest(f"{name}: a parameter is never null; leave it out")
        elif name in _moments(kind) and not _MOMENT.match(value):
            # A number would be read as seconds since 1970, which nobody means.
            raise InvalidRequest(f"{name}: {value!r} is no time as in 2027-03-28T03:15:00Z")
        else:
            found[name] = value
    return found


@functools.cache
def _list_fields(kind: type[Struct]) -> frozenset[str]:
    lists = (inspect.ListType, inspect.VarTupleType)
    return frozenset(
        one.name for one in structs.fields(kind) if isinstance(inspect.type_info(one.type), lists)
    )


@functools.cache
def _fields_without_text(kind: type[Struct]) -> frozenset[str]:
    """Those for which the word null would be read as none, and not as a text."""
    return frozenset(
        one.name
        for one in structs.fields(kind)
        if not any(isinstance(option, inspect.StrType) for option in _options(one.type))
    )


@functools.cache
def _moments(kind: type[Struct]) -> frozenset[str]:
    """Those that are times."""
    return frozenset(
        one.name
        for one in structs.fields(kind)
        if any(isinstance(option, inspect.DateTimeType) for option in _options(one.type))
    )


def _options(kind: Any) -> tuple[inspect.Type, ...]:
    found = inspect.type_info(kind)
    return found.types if isinstance(found, inspect.UnionType) else (found,)


def _plain(struct: Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _told(error: msgspec.ValidationError) -> str:
    text = str(error)
    where = _WHERE.search(text)
    return f"{where[1]}: {text[: where.start()]}" if where and where[1] else _WHERE.sub("", text)
