"""The work queue: what waits for what."""

from typing import Any
from uuid import UUID

from headway.client.client import Client
from headway_contract.dispatching import WorkStateAsked, WorkStatus
from headway_contract.waiting import ExplainWorkAnswer
from headway_errors import NotFound, RequestFailed
from litestar import Request, Response, get, post
from litestar.params import FromPath
from msgspec.structs import replace

from headway_console.access.guards import needs
from headway_console.pages.cancel import cancel
from headway_console.pages.form_fields import choice_of, filters_of, ids_of, text_of
from headway_console.pages.shell import Page, show
from headway_console.reading import Page as ListPage
from headway_console.reading.manifests import find_id
from headway_console.reading.works import (
    WorkFilter,
    count_waiting,
    page_of_works,
    read_work,
)

# What work waits for, in words; the queue may know reasons that came after this page.
REASONS = {
    "awaiting_gate": "the next turn of the gate",
    "not_before": "its time",
    "retry": "its next attempt",
    "no_worker": "a worker that serves the job",
    "workers_full": "a free slot on a worker",
    "group_cap": "room in its group",
    "global_cap": "room under the limit over everything",
    "job_cap": "room under the limit of its job",
    "rate": "its turn under a rate",
    "key": "others with the same key",
    "group_disabled": "its group to be enabled",
    "manifest_disabled": "its manifest to be enabled",
}

_FILTERS = ("state", "reason", "group", "job", "manifest")


def waits_for(reason: str | None) -> str:
    """What work waits for, in words."""
    if reason is None:
        return ""
    return REASONS.get(reason, reason.replace("_", " "))


@get("/work", opt=needs("viewer"))
async def work_queue(request: Request[Any, Any, Any]) -> Response[str]:
    """Work, the newest first."""
    asked = WorkFilter(
        state=choice_of(request, "state", WorkStateAsked),
        group=text_of(request, "group"),
        job=text_of(request, "job"),
        reason=text_of(request, "reason"),
    )
    manifest, cursor = text_of(request, "manifest"), text_of(request, "cursor")
    async with request.app.state.database.acquire() as connection:
        found: ListPage[WorkStatus] = ListPage()
        known = None if manifest is None else await find_id(connection, manifest)
        if manifest is None or known is not None:
            found = await page_of_works(connection, replace(asked, manifest=known), cursor=cursor)
        waiting = await count_waiting(connection)
    return show(
        request,
        "work_queue.html",
        page=found,
        values=filters_of(request, *_FILTERS),
        cursor=cursor or "",
        waiting=waiting,
        reasons=sorted(REASONS.items(), key=lambda one: one[1]),
        waits_for=waits_for,
        unknown_manifest=manifest if manifest is not None and known is None else None,
    )


@get("/work/{work:uuid}", opt=needs("viewer"))
async def work_page(request: Request[Any, Any, Any], work: FromPath[UUID]) -> Response[str]:
    """One piece of work: why it waits, gate by gate, and its runs."""
    async with request.app.state.database.acquire() as connection:
        found = await read_work(connection, work)
    explanation, trouble = await _explain(request, work)
    if found is None and explanation is None:
        raise NotFound(
            f"there is no work {work} in the dispatcher: it may be on its way, or older than the "
            "history that is kept"
        )
    return show(
        request,
        "work.html",
        id=work,
        work=found,
        explanation=explanation,
        trouble=trouble,
        waits_for=waits_for,
        moves=found is None or found.status.state != "settled",
    )


@post("/work/cancel", opt=needs("operator"))
async def cancel_works(request: Request[Any, Any, Any]) -> Response[Any]:
    """End the checked works early."""
    return await cancel(request, await ids_of(request), to="/work")


@post("/work/{work:uuid}/cancel", opt=needs("operator"))
async def cancel_work(request: Request[Any, Any, Any], work: FromPath[UUID]) -> Response[Any]:
    """End one early."""
    return await cancel(request, [work], to=f"/work/{work}")


async def _explain(
    request: Request[Any, Any, Any], work: UUID
) -> tuple[ExplainWorkAnswer | None, str]:
    """What the dispatcher says of it, or why it says nothing; tables tell the rest."""
    client = Client(control=request.app.state.control, actor=request.user.name)
    try:
        return await client.explain_work(work), ""
    except RequestFailed as error:
        return None, str(error)


PAGE = Page(
    title="Work queue",
    path="/work",
    key="q",
    handlers=(work_queue, work_page, cancel_works, cancel_work),
)
