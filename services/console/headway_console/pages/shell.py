"""The frame of all pages, and rendering."""

from pathlib import Path
from typing import Any

import jinja2
from headway_clock import utc_now
from headway_contract.http import ROLES, Role
from headway_errors import Invalid
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from headway_console.access.authentication import Authenticator
from headway_console.access.csrf import csrf_token
from headway_console.access.roles import Person, may
from headway_console.pages.filters import FILTERS
from headway_console.pages.flash import forget_flash, read_flash
from headway_console.pages.form_fields import UTC, zone_of

_FOLDER = Path(__file__).parent
_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(_FOLDER),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(FILTERS)


class Page(Struct, frozen=True, kw_only=True):
    """One page: title and path in the navigation, and handlers."""

    title: str
    path: str
    handlers: tuple[HTTPRouteHandler, ...]
    # The letter of the shortcut after `g`.
    key: str = ""


def show(
    request: Request[Any, Any, Any], template: str, *, status: int = 200, **content: Any
) -> Response[str]:
    """Render a page."""
    flash = read_flash(request)
    text = _templates.get_template(template).render(**_frame(request), flash=flash, **content)
    answer = Response(text, media_type="text/html; charset=utf-8", status_code=status)
    if flash is not None:
        forget_flash(request, answer)
    return answer


def render(template: str, **content: Any) -> str:
    """Render a fragment without the frame."""
    return _templates.get_template(template).render(**content)


def _frame(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Return the variables of `base.html`."""
    person: Person | None = request.scope.get("user")
    authenticator: Authenticator = request.app.state.authenticator
    roles: dict[Role, bool] = {role: bool(person and may(person, role)) for role in ROLES}
    return {
        "person": person,
        "may": roles,
        "csrf": csrf_token(authenticator.seal, person.session) if person else "",
        "navigation": request.app.state.navigation,
        "path": request.url.path,
        "query": request.url.query,
        "now": utc_now(),
        "zone": _zone(request),
    }


def _zone(request: Request[Any, Any, Any]) -> str:
    """Return the zone of filters; an error page about the zone needs one too."""
    try:
        return zone_of(request).key
    except Invalid:
        return UTC.key
