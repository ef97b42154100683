"""Workers: their jobs, slots and runs."""

from functools import partial
from typing import Any

from headway_contract import subjects
from headway_contract.operations import DrainAnswer, DrainRequest
from headway_errors import NotFound
from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.jobs import SHOWN, heard_since
from headway_console.pages.live import watch
from headway_console.pages.shell import Kind, back_of, go_to, go_to_result, show, show_list
from headway_console.reading.runs import RunFilter, page_of_runs
from headway_console.reading.system import list_leases, page_of_workers, read_heartbeats
from headway_console.services import HttpRequest, ask, read

_SHOWN = 8


@get("/workers", opt=needs("viewer"))
async def workers(request: HttpRequest) -> Response[str]:
    """List workers by name."""
    alive_only = fields.text_of(request, "which") != "all"
    since = heard_since(request)
    read_page = partial(page_of_workers, heard_since=since, alive_only=alive_only)
    return await show_list(request, "workers.html", read_page, "which")


@get("/workers/live", opt=needs("viewer"), sync_to_thread=False)
def workers_live(request: HttpRequest) -> ServerSentEvent:
    """Send an event when a worker sends a heartbeat."""
    return watch(request, read_heartbeats)


@get("/workers/{name:str}", opt=needs("viewer"))
async def worker(request: HttpRequest, name: FromPath[str]) -> Response[str]:
    """Show one worker."""
    page = await read(request, page_of_workers, heard_since=heard_since(request), name=name)
    if not page.items:
        raise NotFound(f"there is no worker {name!r}: it may have ended and been forgotten")
    return show(
        request,
        "worker.html",
        worker=page.items[0],
        leases=await read(request, list_leases, name),
        runs=await read(request, page_of_runs, RunFilter(worker=name), limit=SHOWN),
    )


@post("/workers/drain", opt=needs("operator"))
async def drain(request: HttpRequest) -> Response[Any]:
    """Drain the checked workers."""
    back = await back_of(request, "/workers")
    names = [str(name) for name in (await request.form()).getall("id", [])]
    if not 0 < len(names) <= fields.MAX_AT_ONCE:
        text = f"Select some workers first, at most {fields.MAX_AT_ONCE}."
        return go_to(request, back, text=text, kind="bad")
    draining = ask(request, subjects.DRAIN_REQUEST, DrainRequest(workers=names), DrainAnswer)
    return await go_to_result(request, back, draining, _summary)


def _summary(answer: DrainAnswer) -> tuple[str, Kind]:
    drained = any(result.result == "asked" for result in answer.results)
    lines = [result.text for result in answer.results[:_SHOWN]]
    left = len(answer.results) - len(lines)
    lines += [f"… and {left} more"] if left else []
    return "\n".join(lines), "good" if drained else "bad"
