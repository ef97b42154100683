"""Pauses in force, with a button that ends each, and the banner of a pause of all manifests."""

from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.http import API
from headway_contract.manifests import PauseAnswer, PauseRequest, ResumeAnswer, ResumeRequest
from headway_errors import Invalid
from headway_postgres_kit import DatabaseUnavailable
from litestar import Response, get, post

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.shell import back_of, go_to, go_to_result, show_list
from headway_console.reading.groups import page_of_groups
from headway_console.reading.manifests import list_labels
from headway_console.reading.pauses import count_manifests, list_pauses_of_all, page_of_pauses
from headway_console.services import HttpRequest, ask, read

_MAX_GROUPS = 200
_WITHOUT_BANNER = (f"{API}/", "/static/", "/live")


async def read_banner(request: HttpRequest) -> None:
    """Read the pauses of all manifests, which every page shows."""
    if request.scope.get("user") and not request.url.path.startswith(_WITHOUT_BANNER):
        with suppress(DatabaseUnavailable):  # the page itself reports it
            request.state.paused = await read(request, list_pauses_of_all)


@get("/pauses", opt=needs("viewer"))
async def pauses(request: HttpRequest) -> Response[str]:
    """List the pauses in force."""
    groups = (await read(request, page_of_groups, limit=_MAX_GROUPS)).items
    number = await read(request, count_manifests)
    choices = [("all", f"all manifests ({number})")]
    choices += [(f"group:{g.name}", f"group {g.name} ({g.manifests})") for g in groups]
    choices += [
        (f"label:{key}={value}", f"label {key}: {value} ({count})")
        for key, value, count in await read(request, list_labels)
    ]
    return await show_list(request, "pauses.html", page_of_pauses, choices=choices)


@post("/pauses", opt=needs("operator"))
async def add(request: HttpRequest) -> Response[Any]:
    """Pause all manifests, a group or a label."""
    kind, _, name = (await fields.field_of(request, "what")).partition(":")
    key, _, value = name.partition("=")
    chosen: dict[str, dict[str, Any]] = {
        "all": {"all": True},
        "group": {"group": name},
        "label": {"labels": {key: value}},
    }
    return await send_pause(request, "/pauses", **chosen.get(kind, {}))


@post("/pauses/resume", opt=needs("operator"))
async def end(request: HttpRequest) -> Response[Any]:
    """End one pause."""
    back = await back_of(request, "/pauses")
    try:
        named = fields.id_of(await fields.field_of(request, "id"), "id")
    except Invalid as error:
        return go_to(request, back, text=str(error), kind="bad")
    message = ResumeRequest(pauses=[named])
    result = ask(request, subjects.RESUME_REQUEST, message, ResumeAnswer)
    return await go_to_result(request, back, result)


async def send_pause(request: HttpRequest, back: str, **chosen: Any) -> Response[Any]:
    """Pause manifests for the hours of the form, with its reason."""
    hours = await fields.field_of(request, "hours")
    until: datetime | None = None
    try:
        until = utc_now() + timedelta(hours=float(hours)) if hours else None
    except (ValueError, OverflowError):
        text = f"Invalid number of hours {hours!r}: write 1.5"
        return go_to(request, back, text=text, kind="bad")
    reason = await fields.field_of(request, "reason")
    message = PauseRequest(until=until, reason=reason, **chosen)
    result = ask(request, subjects.PAUSE_REQUEST, message, PauseAnswer)
    return await go_to_result(request, back, result)
