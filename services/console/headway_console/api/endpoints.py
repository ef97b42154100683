"""An entry of the API, and the handler that it becomes."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from headway_contract import http
from headway_contract.routes import API, WITHOUT_BODY, Route
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from headway_console.access.guards import needs
from headway_console.access.roles import Person

IDEMPOTENCY_KEY = "idempotency-key"
# As the document says it.
_KEY = re.compile(r"[!-~]{1,255}")

Answered = Callable[[Request[Any, Any, Any], Any], Awaitable[Any]]


class Endpoint(Struct, frozen=True, kw_only=True):
    """A route and what answers it."""

    route: Route
    answered: Answered
    streams: bool = False


def handler_of(endpoint: Endpoint) -> HTTPRouteHandler:
    """The handler of one entry."""
    route = endpoint.route

    async def handle(request: Request[Any, Any, Any]) -> Response[Any]:
        answer = await endpoint.answered(request, await question_of(request, route))
        return answer if isinstance(answer, Response) else as_json(answer)

    return HTTPRouteHandler(
        re.sub(r"\{(\w+)\}", r"{\1:str}", API + route.path),
        http_method=route.method,
        opt=needs(route.role),
        status_code=200,
        name=route.name,
    )(handle)


async def question_of(request: Request[Any, Any, Any], route: Route) -> Any:
    """The question that a request asks; who asks it is who has signed in."""
    person: Person = request.user
    question = http.read(
        route,
        path={name: str(value) for name, value in request.path_params.items()},
        query=request.query_params.multi_items(),
        body=b"" if route.method in WITHOUT_BODY else await request.body(),
        actor=person.name,
    )
    given = request.headers.get(IDEMPOTENCY_KEY)
    if route.key and given is not None:
        question = _keyed(question, route.key, given)
    return question


def as_json(answer: object) -> Response[bytes]:
    """An answer in JSON."""
    return Response(msgspec.json.encode(answer), media_type="application/json", status_code=200)


def _keyed(question: Any, field: str, given: str) -> Any:
    if not _KEY.fullmatch(given):
        raise http.InvalidRequest(
            "Idempotency-Key: it has 1 to 255 characters, printable ones of ASCII without spaces"
        )
    stated = getattr(question, field)
    if stated not in (None, given):
        raise http.InvalidRequest(
            f"{field}: it is {stated!r}, and the header Idempotency-Key says {given!r}"
        )
    return msgspec.structs.replace(question, **{field: given})
