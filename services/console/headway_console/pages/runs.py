"""Runs: found by how they ended, by what they belong to, and by text in what they were given."""

from typing import Any, Literal

from headway_contract.dispatching import RunStateAsked
from litestar import Request, Response, get, post
from msgspec.structs import replace

from headway_console.access.guards import needs
from headway_console.pages import run
from headway_console.pages.cancel import cancel
from headway_console.pages.form_fields import (
    choice_of,
    filters_of,
    ids_of,
    moment_of,
    text_of,
)
from headway_console.pages.shell import Page, show
from headway_console.reading import Page as ListPage
from headway_console.reading.manifests import find_id
from headway_console.reading.runs import RunFilter, RunRow, page_of_runs

TextIn = Literal["anywhere", "error", "input"]
_FILTERS = ("state", "job", "manifest", "group", "worker", "since", "before", "text", "in")


@get("/runs", opt=needs("viewer"))
async def runs(request: Request[Any, Any, Any]) -> Response[str]:
    """Runs, the newest first."""
    asked = RunFilter(
        state=choice_of(request, "state", RunStateAsked),
        group=text_of(request, "group"),
        job=text_of(request, "job"),
        worker=text_of(request, "worker"),
        since=moment_of(request, "since"),
        before=moment_of(request, "before"),
        text=text_of(request, "text"),
        text_in=choice_of(request, "in", TextIn) or "anywhere",
    )
    manifest, cursor = text_of(request, "manifest"), text_of(request, "cursor")
    async with request.app.state.database.acquire() as connection:
        found: ListPage[RunRow] = ListPage()
        known = None if manifest is None else await find_id(connection, manifest)
        if manifest is None or known is not None:
            found = await page_of_runs(connection, replace(asked, manifest=known), cursor=cursor)
    return show(
        request,
        "runs.html",
        page=found,
        values=filters_of(request, *_FILTERS),
        cursor=cursor or "",
        unknown_manifest=manifest if manifest is not None and known is None else None,
    )


@post("/runs/cancel", opt=needs("operator"))
async def cancel_runs(request: Request[Any, Any, Any]) -> Response[Any]:
    """End the checked runs early."""
    return await cancel(request, await ids_of(request), to="/runs")


PAGE = Page(title="Runs", path="/runs", key="r", handlers=(runs, cancel_runs, *run.HANDLERS))
