"""The work queue, with the reason why work waits; and cancels of work and runs."""

from collections import Counter
from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract import work_queue as contract
from headway_errors import Invalid, NotFound, RequestFailed
from litestar import Response, get, post
from litestar.params import FromPath

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.filters import words
from headway_console.pages.shell import back_of, go_to, show, show_list
from headway_console.reading.manifests import find_id
from headway_console.reading.works import WorkFilter, count_waiting, page_of_works, read_work
from headway_console.services import HttpRequest, ask, read

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
_CANCEL_RESULTS = {
    "settled": "cancelled before start",
    "asked_to_stop": "asked to stop",
    "asked": "will be asked to stop",
    "already_settled": "already settled",
    "unknown": "unknown",
}


def waits_for(reason: str | None) -> str:
    """Describe what work waits for."""
    return "" if reason is None else REASONS.get(reason, words(reason))


async def unknown_manifest(request: HttpRequest, name: str | None) -> str | None:
    """Return the name in a filter if no manifest has it, or `None`."""
    return name if name and await read(request, find_id, name) is None else None


@get("/work", opt=needs("viewer"))
async def work_queue(request: HttpRequest) -> Response[str]:
    """List work, the newest first."""
    filters = fields.read_filters(request, WorkFilter)
    return await show_list(
        request,
        "work_queue.html",
        page_of_works,
        filters=filters,
        waiting=await read(request, count_waiting),
        reasons=sorted(REASONS.items(), key=lambda reason: reason[1]),
        waits_for=waits_for,
        unknown_manifest=await unknown_manifest(request, filters.manifest),
    )


@get("/work/{work:uuid}", opt=needs("viewer"))
async def work_page(request: HttpRequest, work: FromPath[UUID]) -> Response[str]:
    """Show one piece of work: its runs, and its gates as the dispatcher explains them."""
    found, explanation, trouble = None, None, ""
    question = contract.WorkQuestion(work=work)
    try:
        explanation = await ask(
            request, subjects.EXPLAIN_WORK_QUESTION, question, contract.ExplainWorkAnswer
        )
    except RequestFailed as error:
        trouble = str(error)
    try:
        found = await read(request, read_work, work)
    except NotFound:
        if explanation is None:
            raise
    return show(
        request,
        "work.html",
        id=work,
        work=found,
        explanation=explanation,
        trouble=trouble,
        moves=found is None or found.status.state != "settled",
    )


@post("/work/cancel", opt=needs("operator"))
async def cancel(request: HttpRequest) -> Response[Any]:
    """Cancel work or runs by their ids, and show the results."""
    ids = await fields.ids_of(request)
    if not ids:
        raise Invalid("nothing is selected: select work to cancel")
    message = contract.CancelRequest(ids=ids, reason=await fields.field_of(request, "reason"))
    answer = await ask(request, subjects.CANCEL_REQUEST, message, contract.CancelAnswer)
    ended = {"settled", "asked_to_stop", "asked"} & {result.result for result in answer.results}
    back = await back_of(request, "/work")
    return go_to(request, back, text=cancel_summary(answer), kind="good" if ended else "bad")


def cancel_summary(answer: contract.CancelAnswer) -> str:
    """Summarise the results of a cancel."""
    if len(answer.results) == 1 and answer.results[0].text:
        return answer.results[0].text
    counts = Counter(result.result for result in answer.results).most_common()
    return ", ".join(f"{many} {_CANCEL_RESULTS.get(kind, kind)}" for kind, many in counts)
