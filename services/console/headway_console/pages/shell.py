"""The frame of all pages, rendering, redirects with a message, and error pages.

The message of a redirect travels in a signed cookie, and the next page shows it once.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jinja2
from headway_clock import utc_now
from headway_contract.http import API, ROLES
from headway_errors import RequestFailed
from litestar import Response
from msgspec import Struct

from headway_console.access.authentication import Authenticator, SignInNeeded
from headway_console.access.guards import csrf_token
from headway_console.access.roles import Person, may
from headway_console.pages import form_fields as fields
from headway_console.pages.filters import FILTERS
from headway_console.problems import problem_of, respond, sign_in_url
from headway_console.services import HttpRequest, read

_FLASH = "flash"
_FLASH_LIFETIME = timedelta(minutes=1)
# A cookie holds four kilobytes, and base64 adds a third.
_MAX_TEXT = 1800
_MAX_PATH = 2000

Kind = Literal["good", "bad"]

_templates = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters.update(FILTERS)


class Flash(Struct, frozen=True, kw_only=True):
    """A message for the next page: `good` for a success, `bad` for a refusal."""

    kind: Kind
    text: str
    until: datetime


def show(
    request: HttpRequest, template: str, *, status: int = 200, own_zone: str = "", **content: Any
) -> Response[str]:
    """Render a page; `own_zone` is the zone of its manifest."""
    authenticator: Authenticator = request.app.state.authenticator
    cookies = authenticator.cookies
    sealed = request.cookies.get(cookies.name("flash"))
    flash = authenticator.seal.open(_FLASH, sealed, Flash, utc_now()) if sealed else None
    text = render(template, **_frame(request, own_zone), flash=flash, **content)
    answer = Response(text, media_type="text/html; charset=utf-8", status_code=status)
    if flash is not None:
        answer.set_cookie(cookies.make("flash"))
    return answer


async def show_list(
    request: HttpRequest,
    template: str,
    read_page: Callable[..., Awaitable[Any]],
    *names: str,
    filters: Struct | None = None,
    **content: Any,
) -> Response[str]:
    """Render a page of a list, with its cursor and its filters: a struct, and other `names`."""
    if filters is not None:
        names, read_page = (*filters.__struct_fields__, *names), partial(read_page, filters=filters)
    cursor = fields.text_of(request, "cursor")
    page = await read(request, read_page, cursor=cursor)
    values = fields.filters_of(request, *names)
    return show(request, template, page=page, values=values, cursor=cursor, **content)


def render(template: str, **content: Any) -> str:
    """Render a template without the frame."""
    return _templates.get_template(template).render(**content)


def _frame(request: HttpRequest, own_zone: str) -> dict[str, Any]:
    """Return the variables of `base.html`."""
    authenticator: Authenticator = request.app.state.authenticator
    # A request without a route is not authenticated; its error page has the navigation too.
    is_known = "user" in request.scope
    person: Person | None = request.scope["user"] if is_known else authenticator.signed_in(request)
    return {
        "person": person,
        "may": {role: bool(person and may(person, role)) for role in ROLES},
        "csrf": csrf_token(authenticator.seal, person.session) if person else "",
        "navigation": request.app.state.navigation,
        "paused": request.state.get("paused", []),
        "path": request.url.path,
        "query": request.url.query,
        "now": utc_now(),
        **shown_in(request, own_zone),
    }


def shown_in(request: HttpRequest, own_zone: str = "") -> dict[str, str]:
    """Return the variables of `macros.html` about the zone of times."""
    browser = fields.browser_zone(request)
    return {
        "zone": fields.shown_zone(request, own_zone).key,
        "zone_choice": fields.zone_choice(request),
        "browser_zone": browser.key if browser else "",
        "own_zone": own_zone,
    }


def redirect(to: str) -> Response[Any]:
    """Redirect to a URL."""
    return Response("", status_code=303, media_type="text/plain", headers={"Location": to})


def go_to(request: HttpRequest, to: str, *, text: str = "", kind: Kind = "good") -> Response[Any]:
    """Redirect to a page, and show a message there."""
    answer = redirect(to)
    if text:
        authenticator: Authenticator = request.app.state.authenticator
        flash = Flash(kind=kind, text=text[:_MAX_TEXT], until=utc_now() + _FLASH_LIFETIME)
        sealed = authenticator.seal.close(_FLASH, flash)
        answer.set_cookie(authenticator.cookies.make("flash", sealed, _FLASH_LIFETIME))
    return answer


async def go_to_result(
    request: HttpRequest,
    to: str,
    result: Awaitable[Any],
    summary: Callable[[Any], tuple[str, Kind]] = lambda answer: (answer.text, "good"),
) -> Response[Any]:
    """Redirect to a page, and show a summary of an answer there, or why the service refused."""
    try:
        text, kind = summary(await result)
    except RequestFailed as error:
        text, kind = str(error), "bad"
    return go_to(request, to, text=text, kind=kind)


async def back_of(request: HttpRequest, otherwise: str) -> str:
    """Return the page of the console that a form came from."""
    given = (await request.form()).get("back")
    return safe_path(given) if given else otherwise


def safe_path(given: object) -> str:
    """Return a path of this console, or `/` if the given one leads elsewhere."""
    path = str(given or "/")
    is_ours = path.startswith("/") and path[1:2] not in ("/", "\\") and len(path) < _MAX_PATH
    return path if is_ours and path.isprintable() else "/"


def answer_error(request: HttpRequest, error: Exception) -> Response[Any]:
    """Answer programs with a problem, people with a page, and redirect to the sign-in."""
    is_partial = "hx-request" in request.headers
    wants_page = is_partial or "text/html" in request.headers.get("accept", "")
    if request.url.path.startswith(f"{API}/") or not wants_page:
        return respond(request, error)
    if not isinstance(error, SignInNeeded) or error.unavailable:
        problem = problem_of(error)
        return show(request, "error.html", status=problem.status, problem=problem)
    if is_partial:
        current = request.headers.get("hx-current-url", "/")
        path = "/" + current.partition("://")[2].partition("/")[2]
        return Response("", status_code=401, headers={"HX-Redirect": sign_in_url(path)})
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return redirect(sign_in_url(wanted if request.method == "GET" else "/"))
