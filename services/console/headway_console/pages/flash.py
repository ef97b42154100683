"""What was done or refused, told on the page that follows.

It travels in a cookie that only we can have made, and is shown once.
"""

from datetime import datetime, timedelta
from typing import Any, Literal

from headway_clock import utc_now
from litestar import Request, Response
from litestar.datastructures import Cookie
from msgspec import Struct

from headway_console.access.authentication import Doorkeeper

_PURPOSE = "flash"
_LASTS = timedelta(minutes=1)
# A cookie holds four kilobytes; a text in base64 needs a third more.
_LONGEST_TEXT = 1800

Kind = Literal["good", "bad"]


class Flash(Struct, frozen=True, kw_only=True):
    """A message: `good` if it was done, `bad` if it was refused."""

    kind: Kind
    text: str
    until: datetime


def go_to(
    request: Request[Any, Any, Any], to: str, *, text: str = "", kind: Kind = "good"
) -> Response[Any]:
    """Send the browser to one of our pages, with a message that it shows there."""
    answer: Response[Any] = Response(
        "", status_code=303, media_type="text/plain", headers={"Location": to}
    )
    if text:
        doorkeeper: Doorkeeper = request.app.state.doorkeeper
        flash = Flash(kind=kind, text=text[:_LONGEST_TEXT], until=utc_now() + _LASTS)
        answer.set_cookie(_cookie(doorkeeper, doorkeeper.seal.close(_PURPOSE, flash), _LASTS))
    return answer


def read_flash(request: Request[Any, Any, Any]) -> Flash | None:
    """The message for this page, if there is one."""
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    sealed = request.cookies.get(_name(doorkeeper))
    return None if not sealed else doorkeeper.seal.open(_PURPOSE, sealed, Flash, utc_now())


def forget_flash(request: Request[Any, Any, Any], answer: Response[Any]) -> None:
    """It was shown."""
    answer.set_cookie(_cookie(request.app.state.doorkeeper, "", timedelta(0)))


def _name(doorkeeper: Doorkeeper) -> str:
    return f"{doorkeeper.cookies.session}-flash"


def _cookie(doorkeeper: Doorkeeper, value: str, lasts: timedelta) -> Cookie:
    return Cookie(
        key=_name(doorkeeper),
        value=value,
        path="/",
        secure=doorkeeper.cookies.secure,
        httponly=True,
        samesite="lax",
        max_age=int(lasts.total_seconds()),
    )
