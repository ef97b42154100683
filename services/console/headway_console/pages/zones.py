"""The choice of the zone in which all pages show times."""

from datetime import timedelta
from typing import Any

from litestar import Response, post
from litestar.datastructures import Cookie

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.shell import back_of, redirect
from headway_console.services import HttpRequest

_REMEMBERED = timedelta(days=365)


@post("/times", opt=needs("viewer"))
async def choose_zone(request: HttpRequest) -> Response[Any]:
    """Remember a choice in a cookie, and return to the page."""
    answer = redirect(await back_of(request, "/"))
    answer.set_cookie(
        Cookie(
            key=fields.CHOICE_COOKIE,
            value=fields.read_choice(await fields.field_of(request, "times")),
            path="/",
            max_age=int(_REMEMBERED.total_seconds()),
            secure=request.app.state.settings.is_secure,
            httponly=True,
            samesite="lax",
        )
    )
    return answer
