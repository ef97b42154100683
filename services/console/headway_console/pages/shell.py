"""What all pages share: the frame around them, and the way to it."""

from pathlib import Path
from typing import Any

import jinja2
from headway_clock import utc_now
from headway_contract.http import InvalidRequest
from headway_contract.routes import ROLES, Role
from litestar import Request, Response
from litestar.handlers import HTTPRouteHandler
from msgspec import Struct

from headway_console.access.authentication import Doorkeeper
from headway_console.access.csrf import csrf_token
from headway_console.access.roles import Person, may
from headway_console.pages.filters import FILTERS
from headway_console.pages.flash import forget_flash, read_flash
from headway_console.pages.zones import UTC, zone_of

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
    """One page: its title and address in the navigation, and its handlers."""

    title: str
    path: str
    handlers: tuple[HTTPRouteHandler, ...]
    # The letter that leads there after `g`.
    key: str = ""


def show(
    request: Request[Any, Any, Any], template: str, *, status: int = 200, **content: Any
) -> Response[str]:
    """Render a template, with what `base.html` needs."""
    flash = read_flash(request)
    text = _templates.get_template(template).render(**_frame(request), flash=flash, **content)
    answer = Response(text, media_type="text/html; charset=utf-8", status_code=status)
    if flash is not None:
        forget_flash(request, answer)
    return answer


def render(template: str, **content: Any) -> str:
    """Render a part of a page, which has no frame."""
    return _templates.get_template(template).render(**content)


def _frame(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """Who looks, what they may do, and where they are."""
    person: Person | None = request.scope.get("user")
    doorkeeper: Doorkeeper = request.app.state.doorkeeper
    roles: dict[Role, bool] = {role: bool(person and may(person, role)) for role in ROLES}
    return {
        "person": person,
        "may": roles,
        "csrf": csrf_token(doorkeeper.seal, person.session) if person else "",
        "navigation": request.app.state.navigation,
        "path": request.url.path,
        "query": request.url.query,
        "now": utc_now(),
        "zone": _zone(request),
    }


def _zone(request: Request[Any, Any, Any]) -> str:
    """The zone of times in filters; a page that refuses a zone is shown as well."""
    try:
        return zone_of(request).key
    except InvalidRequest:
        return UTC.key
