"""The map of all dependencies: which manifest starts which others."""

from litestar import Response, get

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.manifests import graph
from headway_console.pages.shell import show
from headway_console.reading import manifests
from headway_console.services import HttpRequest, read


@get("/dependencies", opt=needs("viewer"))
async def dependencies(request: HttpRequest) -> Response[str]:
    """Draw each tree of dependent manifests."""
    values = fields.filters_of(request, "text", "show")
    trees = await read(request, manifests.list_connected)
    drawn = [tree for tree in trees if any(_matches(node, values) for node in tree)]
    return show(
        request,
        "manifests/dependencies.html",
        values=values,
        drawings=[drawing for tree in drawn if (drawing := graph.draw(tree))],
        shown=sum(map(len, drawn)),
        total=sum(map(len, trees)),
        most=manifests.CONNECTED,
    )


def _matches(node: manifests.Relative, values: dict[str, str]) -> bool:
    text = values["text"].lower()
    is_found = text in node.external_id.lower() or text in node.group.lower()
    is_well = node.held_by is None and node.last_outcome in (None, "completed")
    return is_found and not (values["show"] == "problems" and is_well)
