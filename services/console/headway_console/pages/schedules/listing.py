"""The list of manifests, filtered by text, group, label and state."""

from typing import Any, get_args

from litestar import Request, Response, get

from headway_console.access.guards import needs
from headway_console.pages.shell import show
from headway_console.reading.groups import page_of_groups
from headway_console.reading.manifests import (
    Label,
    ManifestFilter,
    ManifestState,
    list_labels,
    page_of_manifests,
)

STATES = get_args(ManifestState)
_MAX_GROUPS = 200
_NAMES = ("text", "group", "label", "state", "job", "owner")


@get("/schedules", opt=needs("viewer"))
async def schedules(request: Request[Any, Any, Any]) -> Response[str]:
    """List manifests."""
    given = request.query_params
    values = {name: given.get(name, "").strip() for name in _NAMES}
    cursor = given.get("cursor") or None
    async with request.app.state.database.acquire() as connection:
        page = await page_of_manifests(connection, filter_of(values), cursor=cursor)
        groups = (await page_of_groups(connection, limit=_MAX_GROUPS)).items
        labels = await list_labels(connection)
    return show(
        request,
        "schedules/list.html",
        page=page,
        values=values,
        cursor=cursor,
        groups=[group.name for group in groups],
        labels=[_choice(label) for label in labels],
        states=STATES,
    )


def filter_of(values: dict[str, str]) -> ManifestFilter:
    """Read the filter of the URL; an unknown state is ignored."""
    return ManifestFilter(
        text=values["text"] or None,
        group=values["group"] or None,
        job=values["job"] or None,
        owner=values["owner"] or None,
        label=(values["label"],) if "=" in values["label"] else (),
        state=values["state"] if values["state"] in STATES else None,  # type: ignore[arg-type]
    )


def _choice(label: Label) -> tuple[str, str]:
    return f"{label.key}={label.value}", f"{label.key}: {label.value} ({label.manifests})"
