"""Runs: the list, and one run with the other attempts of its work."""

from functools import partial
from typing import Any, Literal
from uuid import UUID

from headway_contract import subjects
from headway_contract.manifests import TriggerAnswer, TriggerRequest
from headway_contract.work_queue import EnqueueAnswer, EnqueueRequest, RunState
from headway_tracing import traceparent
from litestar import Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent

from headway_console.access.guards import needs
from headway_console.pages import form_fields as fields
from headway_console.pages.live import watch
from headway_console.pages.shell import Page, go_to, show, show_list
from headway_console.pages.work_queue import cancel, unknown_manifest
from headway_console.reading.runs import RunFilter, page_of_runs, read_run, read_run_changes
from headway_console.services import HttpRequest, ask, read
from headway_console.settings import ConsoleSettings

TextIn = Literal["anywhere", "error", "input"]
_FILTERS = ("state", "job", "manifest", "group", "worker", "since", "before", "text", "in")


@get("/runs", opt=needs("viewer"))
async def runs(request: HttpRequest) -> Response[str]:
    """List runs, the newest first."""
    filters = RunFilter(
        **fields.texts_of(request, "group", "job", "manifest", "worker", "text"),
        **fields.times_of(request),
        state=fields.choice_of(request, "state", RunState),
        text_in=fields.choice_of(request, "in", TextIn) or "anywhere",
    )
    unknown = await unknown_manifest(request, filters.manifest)
    read_page = partial(page_of_runs, filters=filters)
    return await show_list(request, "runs.html", read_page, _FILTERS, unknown_manifest=unknown)


@post("/runs/cancel", opt=needs("operator"))
async def cancel_runs(request: HttpRequest) -> Response[Any]:
    """Cancel the checked runs."""
    return await cancel(request, await fields.ids_of(request), to="/runs")


@get("/runs/{run:uuid}", opt=needs("viewer"))
async def run_page(request: HttpRequest, run: FromPath[UUID]) -> Response[str]:
    """Show one run."""
    found = await read(request, read_run, run)
    under_way = found.status.finished_at is None
    return show(
        request,
        "run.html",
        run=found,
        row=found.status,
        under_way=under_way,
        moves=under_way or found.work_state != "settled",
        trace=trace_link(request.app.state.settings, found.trace_id),
    )


@get("/runs/{run:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def run_live(request: HttpRequest, run: FromPath[UUID]) -> ServerSentEvent:
    """Send an event when the run changes, its progress and log included."""
    return watch(request, partial(read_run_changes, run=run))


@post("/runs/{run:uuid}/cancel", opt=needs("operator"))
async def cancel_run(request: HttpRequest, run: FromPath[UUID]) -> Response[Any]:
    """Cancel one run."""
    return await cancel(request, [run], to=f"/runs/{run}")


@post("/runs/{run:uuid}/again", opt=needs("operator"))
async def run_again(request: HttpRequest, run: FromPath[UUID]) -> Response[Any]:
    """Run the manifest again with the same input, or the job if there is no manifest."""
    found = await read(request, read_run, run)
    row = found.status
    if row.manifest is not None:
        message = TriggerRequest(manifest=row.manifest, input=found.input)
        triggered = await ask(request, subjects.TRIGGER_REQUEST, message, TriggerAnswer)
        text, work = triggered.text or triggered.result, triggered.work
    else:
        order = EnqueueRequest(
            job=row.job, input=found.input, group=row.group, traceparent=traceparent()
        )
        enqueued = await ask(request, subjects.ENQUEUE_REQUEST, order, EnqueueAnswer)
        text, work = f"Queued as work {enqueued.work}", enqueued.work
    return go_to(request, f"/runs/{run}" if work is None else f"/work/{work}", text=text)


def trace_link(settings: ConsoleSettings, trace_id: str | None) -> str | None:
    """Return the URL of a trace in Jaeger, or `None` without a trace or a Jaeger URL."""
    if not settings.jaeger_url or not trace_id:
        return None
    return f"{settings.jaeger_url.rstrip('/')}/trace/{trace_id}"


PAGE = Page(
    title="Runs",
    path="/runs",
    key="r",
    handlers=(runs, cancel_runs, run_page, run_live, cancel_run, run_again),
)
