"""Read the fields of an HTTP request, and report everything that is wrong with them.

Fields that the path names come from the path. Of the others, a GET or DELETE has a query and any
other method a JSON body.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, get_args
from uuid import UUID

import msgspec
from headway_contract.fitting import find_misfits, misfits_of, options_of
from headway_errors import Invalid
from msgspec import NODEFAULT, Meta, Struct, inspect, structs

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# A time without an offset is ambiguous.
_Aware = Annotated[datetime, Meta(tz=True)]
_AWARE: dict[Any, Any] = {datetime: _Aware, datetime | None: _Aware | None}
_TIME = re.compile(r"\d{4}-")
_WHERE = re.compile(r" - at `\$\.?([^`]*)`$")
_KEY = re.compile(r"[!-~]{1,255}")


class Given(Struct, frozen=True, kw_only=True):
    """The fields of a request by their place, as they were sent."""

    path: Mapping[str, str]
    query: Sequence[tuple[str, str]] = ()
    body: bytes = b""


class Shape(Struct, frozen=True, kw_only=True):
    """The fields of a request by their place, as types; and those that hold `ids`."""

    path: type[Struct]
    query: type[Struct]
    body: type[Struct] | None
    ids: frozenset[str]


def struct_fields(kind: type[Struct], *, hidden: Sequence[str] = ()) -> list[Any]:
    """List the fields that a request may set: all but the actor and the hidden ones."""
    found: list[Any] = []
    for field in structs.fields(kind):
        if field.name == "actor" or field.name in hidden:
            continue
        default = field.default
        if field.default_factory is not NODEFAULT:
            default = msgspec.field(default_factory=field.default_factory)
        found.append((field.name, field.type, *(() if field.required else (default,))))
    return found


def shape_of(name: str, method: str, path: str, fields: Sequence[Any]) -> Shape:
    """Place the fields of an endpoint."""
    named = set(_PLACEHOLDER.findall(path))
    in_path = [(field[0], _without_none(field[1])) for field in fields if field[0] in named]
    rest = [
        (field[0], _AWARE.get(field[1], field[1]), *field[2:])
        for field in fields
        if field[0] not in named
    ]
    has_body = method not in ("GET", "DELETE")
    words = "".join(word.capitalize() for word in name.split("_"))
    return Shape(
        path=_struct(f"{words}Path", in_path),
        query=_struct(f"{words}Query", [] if has_body else rest),
        body=_struct(f"{words}Body", rest) if has_body else None,
        ids=frozenset(field[0] for field in fields if _holds_id(field[1])),
    )


def _holds_id(kind: Any) -> bool:
    return kind is UUID or any(map(_holds_id, get_args(kind)))


def read_fields(
    shape: Shape,
    given: Given,
    *,
    checks_types: bool = True,
    key: str | None = None,
) -> dict[str, Any]:
    """Return the fields of a request by name; raises `Invalid`."""
    try:
        found = structs.asdict(msgspec.convert(dict(given.path), shape.path, strict=False))
        collected = _collect(shape.query, given.query)
        found |= structs.asdict(msgspec.convert(collected, shape.query, strict=False))
        if shape.body is not None:
            found |= _read_body(shape.body, given.body or b"{}", checks_types=checks_types)
    except msgspec.ValidationError as error:
        raise Invalid(_describe(error)) from error
    except RecursionError as error:
        raise Invalid("the body is nested too deeply: send fewer levels") from error
    if key is not None:
        if not _KEY.fullmatch(key):
            raise Invalid("Idempotency-Key: use 1 to 255 printable ASCII characters without spaces")
        if found["key"] not in (None, key):
            raise Invalid(f"key: {found['key']!r} differs from the header Idempotency-Key, {key!r}")
        found["key"] = key
    return found


def _read_body(kind: type[Struct], body: bytes, *, checks_types: bool) -> dict[str, Any]:
    """Return the fields of a body; the error lists everything that does not fit."""
    if checks_types:
        try:
            return structs.asdict(msgspec.json.decode(body, type=kind))
        except msgspec.ValidationError as error:
            raise Invalid("\n".join(misfits_of(body, kind)) or _describe(error)) from error
    given = msgspec.json.decode(body, type=dict[str, Any])
    misfits = find_misfits(dict.fromkeys(given), kind)
    wrong = [misfit for misfit in misfits if not misfit.path or misfit.path[0] not in given]
    if wrong:
        raise Invalid("\n".join(map(str, wrong)))
    return given


def _struct(name: str, fields: list[Any]) -> type[Struct]:
    return msgspec.defstruct(name, fields, kw_only=True, frozen=True, forbid_unknown_fields=True)


def _without_none(kind: Any) -> Any:
    options = getattr(kind, "__args__", ())
    if type(None) not in options:
        return kind
    return next(option for option in options if option is not type(None))


def _collect(kind: type[Struct], query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return parameters by name, repeated ones as lists; raises `Invalid`."""
    options = {field.name: options_of(field.type) for field in structs.fields(kind)}
    found: dict[str, Any] = {}
    for name, value in query:
        kinds = options.get(name, ())
        if _any(kinds, inspect.ListType, inspect.VarTupleType):
            found.setdefault(name, []).append(value)
        elif name in found:
            raise Invalid(f"{name}: it is there more than once")
        elif value.lower() == "null" and kinds and not _any(kinds, inspect.StrType):
            raise Invalid(f"{name}: a parameter is never null; leave it out")
        elif _any(kinds, inspect.DateTimeType) and not _TIME.match(value):
            # msgspec would read a number as seconds since 1970.
            raise Invalid(f"{name}: invalid time {value!r}; write 2027-03-28T03:15:00Z")
        else:
            found[name] = value
    return found


def _any(options: Sequence[inspect.Type], *kinds: type[inspect.Type]) -> bool:
    return any(isinstance(option, kinds) for option in options)


def _describe(error: msgspec.ValidationError) -> str:
    """Write the field in front of the problem."""
    text = str(error)
    where = _WHERE.search(text)
    return f"{where[1]}: {text[: where.start()]}" if where and where[1] else _WHERE.sub("", text)
