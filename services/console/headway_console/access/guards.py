"""Authorization of routes, denied by default.

The guard covers the whole application. A route without a declared role is refused, and the
application does not start with one.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from headway_contract.http import ROLES, Role
from litestar import Litestar
from litestar.connection import ASGIConnection, Request
from litestar.handlers import BaseRouteHandler
from litestar.routes import BaseRoute, HTTPRoute

from headway_console.access.authentication import Authenticator, Unknown
from headway_console.access.csrf import FIELD, HEADER, check_origin, check_token
from headway_console.access.roles import ANYONE, Person, may

_SAFE = ("GET", "HEAD", "OPTIONS")
_OPT = "role"


class RouteUndeclared(Exception):
    """A route declares no role."""


class SignInNeeded(Exception):
    """The request is not authenticated."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.reason)
        self.unknown = unknown


class Forbidden(Exception):
    """The role of the person does not suffice."""


def needs(role: Role) -> dict[str, Any]:
    """Declare the role that a route needs: `@get("/", opt=needs("viewer"))`."""
    return {_OPT: role}


def open_to_anyone() -> dict[str, Any]:
    """Declare a route that needs no sign-in."""
    return {_OPT: ANYONE}


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Authorize a request, or raise the reason why not."""
    needed = handler.opt.get(_OPT)
    if needed == ANYONE:
        return
    person: Person | None = connection.scope.get("user")
    if person is None:
        unknown: Unknown | None = connection.scope.get("auth")
        raise SignInNeeded(unknown or Unknown(reason="sign in first"))
    if needed not in ROLES or not may(person, needed):
        raise Forbidden(_refusal(person, needed))
    if connection.scope.get("method") not in _SAFE and person.session:
        await refuse_forged(connection, person)


def still_authorized(
    connection: ASGIConnection[Any, Any, Any, Any], role: Role = "viewer"
) -> Callable[[], Awaitable[bool]]:
    """Return a check whether the person may still follow an open stream.

    They may have signed out, their session or token may have expired, or their role changed.
    """
    authenticator: Authenticator = connection.app.state.authenticator

    async def check() -> bool:
        found = await authenticator.recognise(connection)
        return isinstance(found, Person) and may(found, role)

    return check


async def refuse_forged(connection: ASGIConnection[Any, Any, Any, Any], person: Person) -> None:
    """Raise `Forged` unless a page of this console sent the request."""
    authenticator: Authenticator = connection.app.state.authenticator
    check_origin(connection.headers, connection.app.state.origins)
    given = connection.headers.get(HEADER)
    if given is None and isinstance(connection, Request):
        kind, _ = connection.content_type
        if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
            given = (await connection.form()).get(FIELD)
    check_token(authenticator.seal, person.session, given)


def check_declared(app: Litestar) -> None:
    """Raise `RouteUndeclared` if a route declares no role."""
    undeclared = sorted(
        f"{'/'.join(sorted(_methods(handler)))} {route.path}"
        for route, handler in _handlers(app.routes)
        if handler.opt.get(_OPT) not in (*ROLES, ANYONE) and _methods(handler) != {"OPTIONS"}
    )
    if undeclared:
        raise RouteUndeclared(
            f"routes that declare no role: {', '.join(undeclared)}; "
            "give each opt=needs(...) or opt=open_to_anyone()"
        )


def _handlers(routes: Iterable[BaseRoute]) -> Iterable[tuple[BaseRoute, BaseRouteHandler]]:
    for route in routes:
        if isinstance(route, HTTPRoute):
            for handler in route.route_handlers:
                yield route, handler
        else:
            yield route, route.route_handler  # type: ignore[attr-defined]


def _methods(handler: BaseRouteHandler) -> set[str]:
    return {str(method) for method in getattr(handler, "http_methods", ())}


def _refusal(person: Person, needed: object) -> str:
    if person.role is None:
        return (
            f"{person.name} has no role here: HEADWAY_OIDC_ROLES maps values of the role claim to "
            "roles"
        )
    return f"{person.name} has the role {person.role}, and this needs the role {needed}"
