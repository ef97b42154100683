"""Redirects after a change, with a message for the next page.

The message travels in a signed cookie and is shown once.
"""

from datetime import datetime, timedelta
from typing import Any, Literal

from headway_clock import utc_now
from headway_errors import RequestFailed
from litestar import Request, Response
from litestar.datastructures import Cookie
from msgspec import Struct

from headway_console.access.authentication import Authenticator

_PURPOSE = "flash"
_LIFETIME = timedelta(minutes=1)
# A cookie holds four kilobytes, and base64 adds a third.
_MAX_TEXT = 1800
_MAX_PATH = 2000

Kind = Literal["good", "bad"]


class Flash(Struct, frozen=True, kw_only=True):
    """A message: `good` for a success, `bad` for a refusal."""

    kind: Kind
    text: str
    until: datetime


def go_to(
    request: Request[Any, Any, Any], to: str, *, text: str = "", kind: Kind = "good"
) -> Response[Any]:
    """Redirect to a page, and show a message there."""
    answer = Response[Any]("", status_code=303, media_type="text/plain", headers={"Location": to})
    if text:
        authenticator: Authenticator = request.app.state.authenticator
        flash = Flash(kind=kind, text=text[:_MAX_TEXT], until=utc_now() + _LIFETIME)
        sealed = authenticator.seal.close(_PURPOSE, flash)
        answer.set_cookie(_cookie(authenticator, sealed, _LIFETIME))
    return answer


def refused(request: Request[Any, Any, Any], to: str, error: RequestFailed) -> Response[Any]:
    """Redirect to a page, and show why the service refused."""
    return go_to(request, to, text=str(error), kind="bad")


async def back_of(request: Request[Any, Any, Any], otherwise: str) -> str:
    """Return the page of the console that a form came from."""
    given = (await request.form()).get("back")
    return safe_path(given) if given else otherwise


def safe_path(given: object) -> str:
    """Return a path of this console, or `/` if the given one leads elsewhere."""
    path = str(given or "/")
    is_ours = path.startswith("/") and path[1:2] not in ("/", "\\") and len(path) < _MAX_PATH
    return path if is_ours and path.isprintable() else "/"


def read_flash(request: Request[Any, Any, Any]) -> Flash | None:
    """Return the message for this page, or `None`."""
    authenticator: Authenticator = request.app.state.authenticator
    sealed = request.cookies.get(_name(authenticator))
    return None if not sealed else authenticator.seal.open(_PURPOSE, sealed, Flash, utc_now())


def forget_flash(request: Request[Any, Any, Any], answer: Response[Any]) -> None:
    """Delete the message after it was shown."""
    answer.set_cookie(_cookie(request.app.state.authenticator, "", timedelta(0)))


def _name(authenticator: Authenticator) -> str:
    return f"{authenticator.cookies.session}-flash"


def _cookie(authenticator: Authenticator, value: str, lifetime: timedelta) -> Cookie:
    return Cookie(
        key=_name(authenticator),
        value=value,
        path="/",
        secure=authenticator.cookies.secure,
        httponly=True,
        samesite="lax",
        max_age=int(lifetime.total_seconds()),
    )
