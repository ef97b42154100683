"""How a question becomes a request of HTTP and back, by the rules of its route.

Pages: what a question calls `after` is the `cursor` of the query; a page is `{"items": [...],
"next": cursor or null}`. Only the server knows what a cursor says: to a client it is what an answer
calls `last`, to be sent back as it came.
"""

import base64
import binascii
import functools
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
from msgspec import NODEFAULT, Meta, Struct, inspect, structs

from headway_contract.fitting import fit
from headway_contract.routes import API, FORWARDED, WITHOUT_BODY, Route

_CURSOR, _AFTER, _ACTOR = "cursor", "after", "actor"
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# A time without an offset could mean anything, so no request may bring one.
_Aware = Annotated[datetime, Meta(tz=True)]
_AWARE: dict[Any, Any] = {datetime: _Aware, datetime | None: _Aware | None}
_MOMENT = re.compile(r"\d{4}-")
_NO_CURSOR = "cursor: this is no cursor: send the 'next' of the page before, unchanged"
_WHERE = re.compile(r" - at `\$\.?([^`]*)`$")


class InvalidRequest(ValueError):
    """A request that does not fit its route; the text says where and why."""


class NoRoute(LookupError):
    """No route stands for a question."""


class Sent(Struct, frozen=True, kw_only=True):
    """A request as a client sends it; the path is that of the server, from its root."""

    method: str
    path: str
    query: list[tuple[str, str]] = []
    body: bytes | None = None


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
        query=_struct(f"{made}Query", [] if in_body else _flattened(route, rest)),
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
        asked = msgspec.convert(_collected(shape.query, query), shape.query, strict=False)
        found |= _unflattened(route, _plain(asked))
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


def write(route: Route, question: Struct) -> Sent:
    """The request that asks a question; what is as it is by default is left out."""
    path = route.path
    for name in path_fields(route):
        path = path.replace(f"{{{name}}}", quote(str(getattr(question, name)), safe=""))
    left_out = {*path_fields(route), _ACTOR, *route.hidden}
    said = {
        field.encode_name: getattr(question, field.name)
        for field in structs.fields(question)
        if field.name not in left_out and getattr(question, field.name) != default_of(field)
    }
    where = API + path
    if route.method not in WITHOUT_BODY:
        return Sent(method=route.method, path=where, body=msgspec.json.encode(said))
    nested = said.pop(route.flat, None) if route.flat else None
    if nested is not None:
        said |= {key: one for key, one in _plain(nested).items() if one is not None}
    if route.items and _AFTER in said:
        after = said.pop(_AFTER)
        said[_CURSOR] = after if isinstance(after, str) else cursor_of(msgspec.to_builtins(after))
    return Sent(method=route.method, path=where, query=_spelled(said))


def route_for(subject: str, question: Struct) -> Route:
    """The route that stands for a question; raises `NoRoute` if there is none."""
    for route in FORWARDED:
        if route.subject == subject and _fits(route, question):
            return route
    raise NoRoute(f"there is no route for {type(question).__name__} on {subject}")


def cursor_of(place: str) -> str:
    """A place in a list, as clients send it back."""
    return base64.urlsafe_b64encode(place.encode()).rstrip(b"=").decode()


def place_of(cursor: str) -> str:
    """The place that a cursor stands for; raises `InvalidRequest` if it is none of ours."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(_NO_CURSOR) from error


def page_of(route: Route, answer: Struct) -> dict[str, Any]:
    """A page of an answer, as HTTP tells it."""
    items: list[Any] = getattr(answer, route.items)
    more: bool = getattr(answer, "more", False)
    if not more or not items:
        return {"items": items, "next": None}
    place = getattr(items[-1], route.place) if route.place else getattr(answer, "last", "")
    return {"items": items, "next": cursor_of(str(msgspec.to_builtins(place)))}


def answer_of(route: Route, page: Any) -> dict[str, Any]:
    """The answer that a page was made of, as plain data."""
    following = page.get("next")
    return {route.items: page["items"], "more": following is not None, "last": following or ""}


def default_of(field: structs.FieldInfo) -> Any:
    """What a field is by default; NODEFAULT if it must be stated."""
    if field.default_factory is not NODEFAULT:
        return field.default_factory()
    return field.default


def _fits(route: Route, question: Struct) -> bool:
    by_name = {field.name: field for field in structs.fields(question)}
    named = all(getattr(question, name) is not None for name in path_fields(route))
    return named and all(
        getattr(question, name) == default_of(by_name[name]) for name in route.hidden
    )


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


def _flattened(route: Route, fields: list[structs.FieldInfo]) -> list[Any]:
    made: list[Any] = []
    for field in fields:
        if field.name == route.flat:
            made += [_entry(one) for one in structs.fields(field.type)]
        elif field.name == _AFTER and route.items:
            made.append((_CURSOR, str | None, None))
        else:
            made.append(_entry(field))
    return made


def _unflattened(route: Route, asked: dict[str, Any]) -> dict[str, Any]:
    by_name = {field.name: field for field in structs.fields(route.question)}
    cursor = asked.pop(_CURSOR, None) if route.items else None
    if cursor is not None:
        try:
            kind = _AWARE.get(by_name[_AFTER].type, by_name[_AFTER].type)
            asked[_AFTER] = msgspec.convert(place_of(cursor), kind, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidRequest(_NO_CURSOR) from error
    if route.flat:
        flat: Any = by_name[route.flat].type
        inner = {name: asked.pop(name) for name in flat.__struct_fields__}
        asked[route.flat] = flat(**inner)
    return asked


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


def _spelled(said: Mapping[str, Any]) -> list[tuple[str, str]]:
    spelled: list[tuple[str, str]] = []
    for name, value in said.items():
        for one in value if isinstance(value, list | tuple) else [value]:
            plain = msgspec.to_builtins(one)
            text = str(plain).lower() if isinstance(plain, bool) else str(plain)
            spelled.append((name, text))
    return spelled


def _plain(struct: Struct) -> dict[str, Any]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def _told(error: msgspec.ValidationError) -> str:
    text = str(error)
    where = _WHERE.search(text)
    return f"{where[1]}: {text[: where.start()]}" if where and where[1] else _WHERE.sub("", text)
