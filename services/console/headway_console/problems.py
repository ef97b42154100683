"""What went wrong, as RFC 9457 tells it: one shape for every error, with what to do about it."""

import logging
from typing import Any
from urllib.parse import quote

import asyncpg
import msgspec
from headway.client.control import (
    Invalid,
    NotAnswered,
    NotThere,
    Refused,
    RequestFailed,
    TimedOut,
    TooLarge,
)
from headway.define.definitions import InvalidDefinitions
from headway_contract.http import InvalidRequest
from headway_postgres_kit import DatabaseUnavailable
from litestar import Request, Response
from litestar.exceptions import HTTPException
from msgspec import Struct

from headway_console.access.attempts import TooManyAttempts
from headway_console.access.csrf import Forged
from headway_console.access.guards import Forbidden, SignInNeeded
from headway_console.feed import FeedFull
from headway_console.reading import BadCursor

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


# The first kind that fits says the status, the type and the title; more special ones come first.
_KINDS: tuple[tuple[tuple[type[Exception], ...], int, str, str], ...] = (
    ((SignInNeeded,), 401, "sign-in-needed", "Nobody knows who asks"),
    ((Forbidden,), 403, "forbidden", "Your role is not enough"),
    ((Forged,), 403, "forged", "The request was not made by our own page"),
    ((InvalidRequest, InvalidDefinitions, BadCursor), 422, "invalid", "The request does not fit"),
    ((asyncpg.DataError,), 422, "invalid", "The request does not fit"),
    ((msgspec.DecodeError,), 400, "unreadable", "The request cannot be read"),
    ((TooManyAttempts,), 429, "too-many", "Too many sign-ins have failed"),
    ((NotThere,), 404, "not-there", "There is no such thing"),
    ((TooLarge,), 413, "too-large", "The request is too large"),
    ((Invalid,), 422, "invalid", "The request does not fit"),
    ((Refused,), 409, "refused", "The service has refused"),
    ((TimedOut,), 504, "timed-out", "No service has answered in time"),
    ((FeedFull,), 503, "full", "Too many streams are open"),
    ((NotAnswered,), 503, "not-answered", "No service has answered"),
    ((RequestFailed,), 502, "service-failed", "The service has failed"),
    ((DatabaseUnavailable,), 503, "database-unavailable", "PostgreSQL does not answer"),
)
# Nothing is wrong with the request: the same may do in a moment, and this is when.
_TRY_AGAIN = (503, 504)
_TRY_AGAIN_AFTER = "5"
_SEE_TO = "The console itself runs: see to the scheduler, the dispatcher and NATS"


def problem_of(error: Exception) -> Problem:
    """The problem that an exception stands for."""
    if isinstance(error, SignInNeeded) and error.unknown.unavailable:
        return _problem(503, "issuer-unavailable", "The OIDC issuer does not answer", error)
    if isinstance(error, HTTPException):
        return _of_http(error)
    for kinds, status, kind, title in _KINDS:
        if isinstance(error, kinds):
            detail = f"{error}\n{_SEE_TO}" if isinstance(error, NotAnswered) else error
            return _problem(status, kind, title, detail)
    logger.error("unforeseen", exc_info=error)
    text = "this is a defect of the console; its log says more"
    return _problem(500, "unforeseen", "Something unforeseen", text)


def respond(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """The answer to a request that failed: a problem, or for people a page."""
    problem = msgspec.structs.replace(problem_of(error), instance=request.url.path)
    headers = {"WWW-Authenticate": 'Bearer realm="headway"'} if problem.status == 401 else {}
    if problem.status in _TRY_AGAIN:
        headers["Retry-After"] = _TRY_AGAIN_AFTER
    if isinstance(error, TooManyAttempts):
        headers["Retry-After"] = str(error.wait)
    if isinstance(error, HTTPException) and error.headers:
        headers |= {name: value for name, value in error.headers.items() if name == "Allow"}
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=headers,
    )


def sign_in_url(path: str) -> str:
    """Where somebody signs in who wanted to see something."""
    return f"/sign-in?next={quote(path, safe='')}"


def _problem(status: int, kind: str, title: str, detail: object) -> Problem:
    return Problem(type=_TYPE + kind, title=title, status=status, detail=str(detail))


def _of_http(error: HTTPException) -> Problem:
    words = {
        404: ("not-there", "There is no such page"),
        405: ("method", "This is not how it is asked"),
        413: ("too-large", "The request is too large"),
    }
    kind, title = words.get(error.status_code, ("invalid", "The request does not fit"))
    return _problem(error.status_code, kind, title, error.detail)
