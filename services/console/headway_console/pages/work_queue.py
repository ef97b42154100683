"""The work queue, with the reason why work waits."""

from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.work_queue import ExplainWorkAnswer, WorkQuestion, WorkState, WorkStatus
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
from headway_console.services import ask

# Labels of wait reasons; newer services may send others.
REASONS = {
    "awaiting_gate": "the next gate pass",
    "not_before": "its start time",
    "retry": "its next attempt",
    "no_worker": "a worker for the job",
    "workers_full": "a free worker slot",
    "group_cap": "the group limit",
    "global_cap": "the global limit",
    "job_cap": "the job limit",
    "rate": "the rate limit",
    "key": "work with the same key",
    "group_disabled": "a disabled group",
    "manifest_disabled": "a disabled manifest",
}

_FILTERS = ("state", "reason", "group", "job", "manifest")


def waits_for(reason: str | None) -> str:
    """Describe what work waits for."""
    if reason is None:
        return ""
    return REASONS.get(reason, reason.replace("_", " "))


@get("/work", opt=needs("viewer"))
async def work_queue(request: Request[Any, Any, Any]) -> Response[str]:
    """List work, the newest first."""
    filters = WorkFilter(
        state=choice_of(request, "state", WorkState),
        group=text_of(request, "group"),
        job=text_of(request, "job"),
        reason=text_of(request, "reason"),
    )
    manifest, cursor = text_of(request, "manifest"), text_of(request, "cursor")
    async with request.app.state.database.acquire() as connection:
        found: ListPage[WorkStatus] = ListPage()
        known = None if manifest is None else await find_id(connection, manifest)
        if manifest is None or known is not None:
            filters = replace(filters, manifest_id=known)
            found = await page_of_works(connection, filters, cursor=cursor)
        waiting = await count_waiting(connection)
    return show(
        request,
        "work_queue.html",
        page=found,
        values=filters_of(request, *_FILTERS),
        cursor=cursor or "",
        waiting=waiting,
        reasons=sorted(REASONS.items(), key=lambda reason: reason[1]),
        waits_for=waits_for,
        unknown_manifest=manifest if manifest is not None and known is None else None,
    )


@get("/work/{work:uuid}", opt=needs("viewer"))
async def work_page(request: Request[Any, Any, Any], work: FromPath[UUID]) -> Response[str]:
    """Show one piece of work: its gates and its runs."""
    async with request.app.state.database.acquire() as connection:
        found = await read_work(connection, work)
    explanation, trouble = await _explain(request, work)
    if found is None and explanation is None:
        raise NotFound(
            f"there is no work {work} in the dispatcher: it may not have arrived, or be older than "
            "the kept history"
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
    """Cancel the checked work."""
    return await cancel(request, await ids_of(request), to="/work")


@post("/work/{work:uuid}/cancel", opt=needs("operator"))
async def cancel_work(request: Request[Any, Any, Any], work: FromPath[UUID]) -> Response[Any]:
    """Cancel one piece of work."""
    return await cancel(request, [work], to=f"/work/{work}")


async def _explain(
    request: Request[Any, Any, Any], work: UUID
) -> tuple[ExplainWorkAnswer | None, str]:
    """Return the explanation of the dispatcher, or why there is none."""
    try:
        question = WorkQuestion(work=work)
        answer = await ask(request, subjects.EXPLAIN_WORK_QUESTION, question, ExplainWorkAnswer)
    except RequestFailed as error:
        return None, str(error)
    return answer, ""


PAGE = Page(
    title="Work queue",
    path="/work",
    key="q",
    handlers=(work_queue, work_page, cancel_works, cancel_work),
)
