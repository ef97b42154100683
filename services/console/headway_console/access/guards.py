"""Authorization of routes, denied by default.

The guard covers the whole application. A route without a declared role is refused, and the
application does not start with one.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from headway_contract.http import ROLES, Role
from litestar import Litestar
from litestar.connection import Request
from litestar.handlers import BaseRouteHandler
from litestar.routes import HTTPRoute

from headway_console.access.authentication import Authenticator, Connection, Unknown
from headway_console.access.csrf import FIELD, HEADER, check_origin, check_token
from headway_console.access.roles import Person, may

_SAFE = ("GET", "HEAD", "OPTIONS")
_OPT = "role"
# Routes without sign-in: the sign-in page and its style sheet.
_ANYONE = "anyone"


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
    return {_OPT: _ANYONE}


async def guard(connection: Connection, handler: BaseRouteHandler) -> None:
    """Authorize a request, or raise the reason why not."""
    needed = handler.opt.get(_OPT)
    if needed == _ANYONE:
        return
    person: Person | None = connection.scope.get("user")
    if person is None:
        unknown: Unknown | None = connection.scope.get("auth")
        raise SignInNeeded(unknown or Unknown(reason="sign in first"))
    if needed not in ROLES or not may(person, needed):
        if person.role is None:
            raise Forbidden(
                f"{person.name} has no role here: HEADWAY_OIDC_ROLES maps values of the role claim "
                "to roles"
            )
        raise Forbidden(
            f"{person.name} has the role {person.role}, and this needs the role {needed}"
        )
    if connection.scope.get("method") not in _SAFE and person.session:
        await refuse_forged(connection, person)


def still_authorized(
    connection: Connection, role: Role = "viewer"
) -> Callable[[], Awaitable[bool]]:
    """Return a check whether the person may still follow an open stream.

    They may have signed out, their session or token may have expired, or their role changed.
    """
    authenticator: Authenticator = connection.app.state.authenticator

    async def check() -> bool:
        found = await authenticator.recognise(connection)
        return isinstance(found, Person) and may(found, role)

    return check


async def refuse_forged(connection: Connection, person: Person) -> None:
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
    undeclared = []
    for route in app.routes:
        handlers = route.route_handlers if isinstance(route, HTTPRoute) else [route.route_handler]
        for handler in handlers:
            methods = {str(method) for method in getattr(handler, "http_methods", ())}
            if handler.opt.get(_OPT) not in (*ROLES, _ANYONE) and methods != {"OPTIONS"}:
                undeclared.append(f"{'/'.join(sorted(methods))} {route.path}")
    if undeclared:
        raise RouteUndeclared(
            f"routes that declare no role: {', '.join(sorted(undeclared))}; "
            "give each opt=needs(...) or opt=open_to_anyone()"
        )
