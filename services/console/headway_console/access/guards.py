"""Deny by default: who may use which route.

The guard stands before the whole application. It lets nobody through to a route that does not
declare whom it is for, and the application does not start if there is such a route.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from headway_contract.routes import ROLES, Role
from litestar import Litestar
from litestar.connection import ASGIConnection, Request
from litestar.handlers import BaseRouteHandler
from litestar.routes import BaseRoute, HTTPRoute

from headway_console.access.authentication import Doorkeeper, Unknown
from headway_console.access.csrf import FIELD, HEADER, Forged, check_origin, check_token
from headway_console.access.roles import ANYONE, Person, may

_SAFE = ("GET", "HEAD", "OPTIONS")
_OPT = "role"


class RouteUndeclared(Exception):
    """A route does not say which role it needs."""


class SignInNeeded(Exception):
    """Nobody knows who asks."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.reason)
        self.unknown = unknown


class Forbidden(Exception):
    """Whoever asks may not do this."""


def needs(role: Role) -> dict[str, Any]:
    """The declaration of a route that needs a role: `@get("/", opt=needs("viewer"))`."""
    return {_OPT: role}


def open_to_anyone() -> dict[str, Any]:
    """The declaration of a route that needs nobody to sign in."""
    return {_OPT: ANYONE}


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Let through who may; everybody else is told why not."""
    needed = handler.opt.get(_OPT)
    if needed == ANYONE:
        return
    person: Person | None = connection.scope.get("user")
    if person is None:
        unknown: Unknown | None = connection.scope.get("auth")
        raise SignInNeeded(unknown or Unknown(reason="sign in first"))
    if needed not in ROLES or not may(person, needed):
        raise Forbidden(_why(person, needed))
    if connection.scope.get("method") not in _SAFE and person.session:
        await refuse_forged(connection, person)


def still_let_in(
    connection: ASGIConnection[Any, Any, Any, Any], role: Role = "viewer"
) -> Callable[[], Awaitable[bool]]:
    """Asks whether whoever opened a stream may still hear it.

    They may have signed out, their session or token may be over, or their role another.
    """
    doorkeeper: Doorkeeper = connection.app.state.doorkeeper

    async def asked() -> bool:
        found = await doorkeeper.recognise(connection)
        return isinstance(found, Person) and may(found, role)

    return asked


async def refuse_forged(connection: ASGIConnection[Any, Any, Any, Any], person: Person) -> None:
    """Raise `Forged` unless our own page has sent this."""
    doorkeeper: Doorkeeper = connection.app.state.doorkeeper
    check_origin(connection.headers, connection.app.state.origins)
    given = connection.headers.get(HEADER)
    if given is None and isinstance(connection, Request):
        kind, _ = connection.content_type
        if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
            given = (await connection.form()).get(FIELD)
    check_token(doorkeeper.seal, person.session, given)


def check_declared(app: Litestar) -> None:
    """Raise `RouteUndeclared` with every route that does not say whom it is for."""
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


def _why(person: Person, needed: object) -> str:
    if person.role is None:
        return (
            f"{person.name} is known, but has no role here: HEADWAY_OIDC_ROLES says which values "
            "of the role claim mean which role"
        )
    return f"{person.name} is {person.role}, and this needs the role {needed}"


__all__ = [
    "Forbidden",
    "Forged",
    "RouteUndeclared",
    "SignInNeeded",
    "check_declared",
    "guard",
    "needs",
    "open_to_anyone",
    "refuse_forged",
    "still_let_in",
]
