"""Endpoints of the API: a typed function, its route, and the Litestar handler of both.

The parameters of the function are the fields of the request; a struct among them stands for its
fields. `request`, `connection` and `heard_since` are provided, and the actor is the person who
signed in.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from headway_contract.http import API, Role
from headway_postgres_kit import DATABASE_CLOCK
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Meta, Struct

from headway_console.access.guards import needs
from headway_console.api.request_fields import (
    Given,
    Shape,
    read_fields,
    shape_of,
    struct_fields,
)
from headway_console.api.short_ids import complete_ids
from headway_console.services import HttpRequest

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Respond = Callable[[HttpRequest, dict[str, Any]], Awaitable[Any]]

IDEMPOTENCY_KEY = "Idempotency-Key"
_PROVIDED = ("request", "connection", "heard_since")
# The API's own defaults; pages of the console are shorter.
_PAGING = {
    "cursor": (Annotated[str, Meta(max_length=1000)] | None, None),
    "limit": (Annotated[int, Meta(ge=1, le=500)], 100),
}


class Tag(StrEnum):
    """A section of the document."""

    MANIFESTS = "Manifests"
    GROUPS = "Groups"
    JOBS = "Jobs"
    WORK = "Work and runs"
    LETTERS = "Dead letters"
    DEFINITIONS = "Definitions"
    SYSTEM = "System"


class Endpoint(Struct, frozen=True, kw_only=True):
    """A route with its role and its types, and the function that answers it.

    With `checks_types` the function itself checks the types of the body's fields, because it can
    report more about them.
    """

    name: str
    method: Method
    path: str
    role: Role
    tag: Tag
    summary: str
    shape: Shape
    answer: Any
    respond: Respond
    checks_types: bool = False
    streams: bool = False
    subject: str = ""

    @property
    def takes_key(self) -> bool:
        """Tell whether the header Idempotency-Key fills the field `key`."""
        fields = (self.shape.body or self.shape.query).__struct_fields__
        return self.role != "viewer" and "key" in fields


def make_endpoint(
    name: str, method: Method, path: str, tag: Tag, fields: Sequence[Any], **terms: Any
) -> Endpoint:
    """Make an endpoint; the path and the method place the fields of its request."""
    shape = shape_of(name, method, path, fields)
    return Endpoint(name=name, method=method, path=path, tag=tag, shape=shape, **terms)


def endpoint(
    method: Method,
    path: str,
    tag: Tag,
    *,
    role: Role = "viewer",
    name: str = "",
    answer: Any = None,
    hidden: Sequence[str] = (),
    streams: bool = False,
) -> Callable[[Callable[..., Awaitable[Any]]], Endpoint]:
    """Make an endpoint of a function with its docstring; requests cannot set `hidden` fields."""

    def make(function: Callable[..., Awaitable[Any]]) -> Endpoint:
        hints = get_type_hints(function, include_extras=True)
        terms = {"role": role, "summary": first_line(function), "streams": streams}
        terms |= {"answer": answer or hints["return"], "respond": _respond(function, hints)}
        fields = _parameters(function, hints, hidden)
        return make_endpoint(name or function.__name__, method, path, tag, fields, **terms)

    return make


def first_line(described: object) -> str:
    """Return the first line of a docstring."""
    return inspect.cleandoc(described.__doc__ or "").partition("\n")[0]


def handler_of(endpoint: Endpoint) -> HTTPRouteHandler:
    """Return the Litestar handler of an endpoint."""

    async def handle(request: HttpRequest) -> Response[Any]:
        given = Given(
            path={name: str(value) for name, value in request.path_params.items()},
            query=list(request.query_params.multi_items()),
            body=b"" if endpoint.shape.body is None else await request.body(),
        )
        if endpoint.shape.ids:
            given = await complete_ids(request, endpoint.shape, endpoint.path, given)
        fields = read_fields(
            endpoint.shape,
            given,
            checks_types=not endpoint.checks_types,
            key=request.headers.get(IDEMPOTENCY_KEY) if endpoint.takes_key else None,
        )
        answer = await endpoint.respond(request, fields)
        if isinstance(answer, Response):
            return answer
        return Response(msgspec.json.encode(answer), media_type="application/json")

    return HTTPRouteHandler(
        re.sub(r"\{(\w+)\}", r"{\1:str}", API + endpoint.path),
        http_method=endpoint.method,
        opt=needs(endpoint.role),
        status_code=200,
        name=endpoint.name,
    )(handle)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _parameters(
    function: Callable[..., Any], hints: Mapping[str, Any], hidden: Sequence[str]
) -> list[Any]:
    """List the fields of a request, as `msgspec.defstruct` takes them."""
    found: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in _PROVIDED:
            continue
        if _is_struct(hints[name]):
            found += struct_fields(hints[name], hidden=hidden)
        elif name in _PAGING:
            found.append((name, *_PAGING[name]))
        else:
            is_required = parameter.default is parameter.empty
            found.append((name, hints[name], *(() if is_required else (parameter.default,))))
    return found


def _respond(function: Callable[..., Awaitable[Any]], hints: Mapping[str, Any]) -> Respond:
    """Return a function that calls an endpoint's function with the fields of a request."""

    def arguments(fields: dict[str, Any]) -> dict[str, Any]:
        return {
            name: kind(**{field: fields[field] for field in kind.__struct_fields__ & fields.keys()})
            if _is_struct(kind)
            else fields[name]
            for name, kind in hints.items()
            if name not in (*_PROVIDED, "return")
        }

    async def respond(request: HttpRequest, fields: dict[str, Any]) -> Any:
        if "connection" not in hints:
            return await function(request=request, **arguments(fields))
        async with request.app.state.database.snapshot() as connection:
            provided = {"connection": connection}
            if "heard_since" in hints:
                alive = timedelta(seconds=request.app.state.settings.orphan_timeout_seconds)
                provided["heard_since"] = await DATABASE_CLOCK.now(connection) - alive
            return await function(**provided, **arguments(fields))

    return respond
