"""Search over everything that has a page."""

from collections.abc import Sequence
from urllib.parse import quote

from litestar import Response, get

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.shell import show
from headway_console.reading.search import Match, search
from headway_console.services import HttpRequest, read

_MAX_TEXT = 200
# The address of a thing, and the title of its kind, in the order of the results.
_PLACES: dict[str, tuple[str, str]] = {
    "page": ("", "Pages"),
    "manifest": ("/manifests/", "Manifests"),
    "job": ("/jobs/", "Jobs"),
    "group": ("/groups/", "Groups"),
    "worker": ("/workers/", "Workers"),
    "run": ("/runs/", "Runs"),
    "work": ("/work/", "Work"),
    "dead letter": ("/dead-letters/", "Dead letters"),
}


@get("/search", opt=needs("viewer"))
async def search_page(request: HttpRequest) -> Response[str]:
    """Show what a text finds."""
    text = (fields.text_of(request, "q") or "")[:_MAX_TEXT]
    found = await read(request, search, text) if text else []
    pages = [
        Match(kind="page", name=page.path, about=page.title)
        for members in request.app.state.navigation.values()
        for page in members
        if text.lower() in page.title.lower()
    ]
    return show(request, "search.html", text=text, found=_by_kind([*pages, *found]))


def _by_kind(found: Sequence[Match]) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """Return a title and the links of each kind: address, text and a line about it."""
    links = {
        title: [_link(match) for match in found if match.kind == kind]
        for kind, (_, title) in _PLACES.items()
    }
    return [(title, some) for title, some in links.items() if some]


def _link(match: Match) -> tuple[str, str, str]:
    if match.kind == "page":
        return match.name, match.about, ""
    return _PLACES[match.kind][0] + quote(match.name, safe=""), match.name, match.about
