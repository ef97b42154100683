"""Error pages."""

from typing import Any

import msgspec
from headway_contract.http import API
from litestar import Request, Response

from headway_console.access.guards import SignInNeeded
from headway_console.pages.shell import show
from headway_console.problems import problem_of, respond, sign_in_url


def answer_error(request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
    """Answer programs with a problem, people with a page, and redirect to the sign-in."""
    if request.url.path.startswith(f"{API}/") or not _wants_page(request):
        return respond(request, error)
    if isinstance(error, SignInNeeded) and not error.unknown.unavailable:
        return _to_sign_in(request)
    problem = msgspec.structs.replace(problem_of(error), instance=request.url.path)
    return show(request, "error.html", status=problem.status, problem=problem)


def _wants_page(request: Request[Any, Any, Any]) -> bool:
    return "hx-request" in request.headers or "text/html" in request.headers.get("accept", "")


def _to_sign_in(request: Request[Any, Any, Any]) -> Response[Any]:
    if "hx-request" in request.headers:
        current = request.headers.get("hx-current-url", "/")
        path = "/" + current.partition("://")[2].partition("/")[2]
        return Response("", status_code=401, headers={"HX-Redirect": sign_in_url(path)})
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    to = sign_in_url(wanted if request.method == "GET" else "/")
    return Response("", status_code=303, media_type="text/plain", headers={"Location": to})
