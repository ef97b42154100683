"""The kinds of errors of requests, and their codes on NATS and HTTP.

A service raises one of these exceptions, its endpoint sends the code, and the client raises the
same exception again.
"""

from enum import Enum


class ErrorKind(Enum):
    """The reason why a request failed."""

    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    CONFLICT = "conflict"
    TOO_LARGE = "too_large"
    TOO_MANY = "too_many"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    TIMED_OUT = "timed_out"


HTTP_STATUS = {
    ErrorKind.INVALID: 422,
    ErrorKind.UNAUTHENTICATED: 401,
    ErrorKind.FORBIDDEN: 403,
    ErrorKind.NOT_FOUND: 404,
    ErrorKind.CONFLICT: 409,
    ErrorKind.TOO_LARGE: 413,
    ErrorKind.TOO_MANY: 429,
    ErrorKind.FAILED: 502,
    ErrorKind.UNAVAILABLE: 503,
    ErrorKind.TIMED_OUT: 504,
}
# The value of the header `Nats-Service-Error-Code`.
NATS_CODE = {
    **{kind: str(status) for kind, status in HTTP_STATUS.items()},
    ErrorKind.INVALID: "400",
    ErrorKind.FAILED: "500",
}


class RequestFailed(Exception):
    """A service rejected a request, or none answered; the text has one reason per line."""

    kind = ErrorKind.FAILED


class Rejected(RequestFailed):
    """The service understood the request but does not carry it out."""


class Invalid(Rejected):
    """The request is wrong in any state of the service: change it."""

    kind = ErrorKind.INVALID


class TooLarge(Invalid):
    """The request has more bytes than can be sent at once."""

    kind = ErrorKind.TOO_LARGE


class NotFound(Rejected):
    """The request names something that does not exist."""

    kind = ErrorKind.NOT_FOUND


class Conflict(Rejected):
    """The request is valid, but not in the current state of the service."""

    kind = ErrorKind.CONFLICT


class Unavailable(RequestFailed):
    """No service answers, or a dependency of the service is down: try again."""

    kind = ErrorKind.UNAVAILABLE


class NoResponder(Unavailable):
    """No service listens on the subject."""


class TimedOut(Unavailable):
    """No answer arrived in time; the request may be carried out, now or later."""

    kind = ErrorKind.TIMED_OUT


_RAISED = {
    error.kind: error
    for error in (RequestFailed, Invalid, TooLarge, NotFound, Conflict, Unavailable, TimedOut)
}
_KIND_OF_CODE = {code: kind for kind, code in NATS_CODE.items()}
_KIND_OF_STATUS = {400: ErrorKind.INVALID} | {status: kind for kind, status in HTTP_STATUS.items()}


def failure(kind: ErrorKind, text: str) -> RequestFailed:
    """Return the exception of a kind."""
    return _RAISED.get(kind, RequestFailed)(text)


def kind_of_code(code: str | None) -> ErrorKind:
    """Return the kind that an error header names; `FAILED` if it is unknown."""
    return _KIND_OF_CODE.get(code or "", ErrorKind.FAILED)


def kind_of_status(status: int) -> ErrorKind:
    """Return the kind that an HTTP status stands for; `FAILED` if it is unknown."""
    return _KIND_OF_STATUS.get(status, ErrorKind.FAILED)
