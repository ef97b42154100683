"""Authorization of routes, and protection against cross-site request forgery.

A route without a declared role is refused. A browser sends a cookie with requests of foreign pages
too: a change therefore needs an origin of this console and the CSRF token of the session, which no
other page can read. htmx sends the token as a header, plain forms as a field.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from headway_contract.http import ROLES, Role
from headway_errors import NotFound
from litestar.connection import Request
from litestar.handlers import BaseRouteHandler

from headway_console.access.authentication import Authenticator, Connection, SignInNeeded
from headway_console.access.roles import Person, may
from headway_console.access.sessions import Seal

_SAFE = ("GET", "HEAD", "OPTIONS")
_OPT = "role"
_CSRF_HEADER = "x-csrf-token"
_CSRF = "csrf"
# Routes without sign-in: the sign-in page and its style sheet.
_ANYONE = "anyone"


class UnknownHost(Exception):
    """The Host header is not a name of this console, for example after DNS rebinding."""


class Forged(Exception):
    """A request that no page of this console made."""


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
    _check_target(connection)
    needed = handler.opt.get(_OPT)
    if needed == _ANYONE:
        return
    person: Person | None = connection.scope.get("user")
    if person is None:
        raise connection.scope.get("auth") or SignInNeeded("sign in first")
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


def _check_target(connection: Connection) -> None:
    """Raise for a host that is not of this console, and for a path that no file or page has."""
    hosts, named = connection.app.state.hosts, connection.headers.getall("host", [])
    if hosts and (len(named) != 1 or named[0].lower() not in hosts):
        raise UnknownHost(f"use {' or '.join(sorted(hosts))}, or set HEADWAY_CONSOLE_URL")
    if not connection.scope["path"].isprintable():  # the file system raises on a NUL
        raise NotFound("the path contains control characters")


def still_authorized(connection: Connection) -> Callable[[], Awaitable[bool]]:
    """Return a check whether the person behind an open stream may still read."""
    authenticator: Authenticator = connection.app.state.authenticator

    async def check() -> bool:
        found = await authenticator.recognise(connection)
        return isinstance(found, Person) and may(found, "viewer")

    return check


async def refuse_forged(connection: Connection, person: Person) -> None:
    """Raise `Forged` unless a page of this console sent the request."""
    check_origin(connection.headers, connection.app.state.origins)
    given = connection.headers.get(_CSRF_HEADER)
    if given is None and isinstance(connection, Request):
        kind, _ = connection.content_type
        if kind in ("application/x-www-form-urlencoded", "multipart/form-data"):
            given = (await connection.form()).get(_CSRF)
    expected = csrf_token(connection.app.state.authenticator.seal, person.session)
    if given is None or not hmac.compare_digest(expected.encode(), given.encode()):
        raise Forged(f"the request lacks the token of its session: send it as {_CSRF_HEADER}")


def csrf_token(seal: Seal, session: str) -> str:
    """Return the CSRF token of a session."""
    return seal.sign(_CSRF, session)


def check_origin(headers: Mapping[str, str], origins: frozenset[str]) -> None:
    """Raise `Forged` unless the browser names a known origin, or its host if none is configured."""
    site = headers.get("sec-fetch-site")
    if site is not None and site != "same-origin":
        raise Forged(f"the request comes from another site ({site})")
    origin = headers.get("origin")
    if site is None and origin is None:
        raise Forged("the request names no origin")
    if origin is None:
        return
    host = origin.lower().partition("://")[2]
    if not (origin.lower() in origins if origins else host == headers.get("host", "").lower()):
        raise Forged(f"the request comes from {origin}")
