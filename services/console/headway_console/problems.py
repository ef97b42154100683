"""Errors of the HTTP API as RFC 9457 problem documents."""

import logging
from typing import Any
from urllib.parse import quote

import msgspec
from headway.define.definitions import InvalidDefinitions
from headway_errors import HTTP_STATUS, ErrorKind, RequestFailed, Unavailable
from headway_postgres_kit import DatabaseUnavailable, driver
from litestar import Request, Response
from litestar.exceptions import HTTPException
from msgspec import Struct

from headway_console.access.authentication import SignInNeeded
from headway_console.access.guards import Forbidden, Forged, UnknownHost
from headway_console.feed import FeedFull

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
_TYPE = "urn:headway:problem:"


class Problem(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error. `detail` says what is wrong and what to do, a reason a line."""

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""


# The type and the title of each kind of error; the status is `HTTP_STATUS[kind]`.
_NAMES: dict[ErrorKind, tuple[str, str]] = {
    ErrorKind.INVALID: ("invalid", "Invalid request"),
    ErrorKind.NOT_FOUND: ("not-there", "Not found"),
    ErrorKind.CONFLICT: ("refused", "Not possible in the current state"),
    ErrorKind.TOO_LARGE: ("too-large", "The request is too large"),
    ErrorKind.FAILED: ("service-failed", "The service failed"),
    ErrorKind.UNAVAILABLE: ("not-answered", "No service answers"),
    ErrorKind.TIMED_OUT: ("timed-out", "No service answered in time"),
}
# The same for errors of Litestar, by their status.
_HTTP = {
    404: ("not-there", "No such page"),
    405: ("method", "Method not allowed"),
    413: ("too-large", "The request is too large"),
}
# The same for exceptions that are no `RequestFailed`, with their status.
_SPECIAL: tuple[tuple[type[Exception], int, str, str], ...] = (
    (SignInNeeded, 401, "sign-in-needed", "Sign in first"),
    (Forbidden, 403, "forbidden", "Your role does not allow this"),
    (InvalidDefinitions, 422, "invalid", "Invalid request"),
    (driver.DataError, 422, "invalid", "Invalid request"),
    (UnknownHost, 421, "host", "Unknown host name"),
    (Forged, 403, "forged", "The request does not come from a page of this console"),
    (msgspec.DecodeError, 400, "unreadable", "The request is unreadable"),
    (FeedFull, 503, "full", "Too many streams are open"),
    (DatabaseUnavailable, 503, "database-unavailable", "PostgreSQL does not answer"),
)
# The same request may succeed after this many seconds.
_TRY_AGAIN = (503, 504)
_TRY_AGAIN_AFTER = "5"
_CHECK_OTHERS = "The console itself runs: check the scheduler, the dispatcher and NATS"


def problem_of(error: Exception) -> Problem:
    """Return the problem document of an exception."""
    if isinstance(error, SignInNeeded) and error.unavailable:
        return _problem(503, "issuer-unavailable", "The OIDC issuer does not answer", error)
    if isinstance(error, HTTPException):
        kind_and_title = _HTTP.get(error.status_code, _NAMES[ErrorKind.INVALID])
        return _problem(error.status_code, *kind_and_title, error.detail)
    for special, status, name, title in _SPECIAL:
        if isinstance(error, special):
            return _problem(status, name, title, error)
    if not isinstance(error, RequestFailed):
        logger.error("unexpected exception in a request", exc_info=error)
        text = "this is a defect of the console; see its log"
        return _problem(500, "unforeseen", "Unexpected error", text)
    detail = f"{error}\n{_CHECK_OTHERS}" if isinstance(error, Unavailable) else error
    return _problem(HTTP_STATUS[error.kind], *_NAMES[error.kind], detail)


def respond(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Return the response to a request that failed."""
    problem = msgspec.structs.replace(problem_of(error), instance=request.url.path)
    headers = {"WWW-Authenticate": 'Bearer realm="headway"'} if problem.status == 401 else {}
    if problem.status in _TRY_AGAIN:
        headers["Retry-After"] = _TRY_AGAIN_AFTER
    if isinstance(error, HTTPException) and error.headers:
        headers |= {name: value for name, value in error.headers.items() if name == "Allow"}
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )


def sign_in_url(path: str) -> str:
    """Return the sign-in page that leads back to a path."""
    return f"/sign-in?next={quote(path, safe='')}"


def _problem(status: int, kind: str, title: str, detail: object) -> Problem:
    return Problem(type=_TYPE + kind, title=title, status=status, detail=str(detail))
