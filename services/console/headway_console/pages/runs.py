"""Runs: the list, and one run with the other attempts of its work."""

from typing import Any, Literal
from uuid import UUID

from headway_contract import subjects
from headway_contract.manifests import TriggerAnswer, TriggerRequest
from headway_contract.work_queue import EnqueueAnswer, EnqueueRequest, RunState
from headway_errors import NotFound
from headway_postgres_kit import Connection
from headway_tracing import traceparent
from litestar import Request, Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent
from msgspec.structs import replace

from headway_console.access.guards import needs, still_authorized
from headway_console.pages.cancel import cancel
from headway_console.pages.flash import go_to
from headway_console.pages.form_fields import (
    choice_of,
    filters_of,
    ids_of,
    moment_of,
    text_of,
)
from headway_console.pages.live import Listening, streamed
from headway_console.pages.shell import Page, show
from headway_console.reading import Page as ListPage
from headway_console.reading.manifests import find_id
from headway_console.reading.run import RunInFull, look_at_run, read_run
from headway_console.reading.runs import RunFilter, RunRow, page_of_runs
from headway_console.services import ask
from headway_console.settings import ConsoleSettings

TextIn = Literal["anywhere", "error", "input"]
_FILTERS = ("state", "job", "manifest", "group", "worker", "since", "before", "text", "in")


@get("/runs", opt=needs("viewer"))
async def runs(request: Request[Any, Any, Any]) -> Response[str]:
    """List runs, the newest first."""
    filters = RunFilter(
        state=choice_of(request, "state", RunState),
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
            filters = replace(filters, manifest_id=known)
            found = await page_of_runs(connection, filters, cursor=cursor)
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
    """Cancel the checked runs."""
    return await cancel(request, await ids_of(request), to="/runs")


@get("/runs/{run:uuid}", opt=needs("viewer"))
async def run_page(request: Request[Any, Any, Any], run: FromPath[UUID]) -> Response[str]:
    """Show one run."""
    found = await _read(request, run)
    return show(
        request,
        "run.html",
        run=found,
        row=found.status,
        under_way=found.status.finished_at is None,
        moves=found.status.finished_at is None or found.work_state != "settled",
        trace=trace_link(request.app.state.settings, found.trace_id),
    )


@get("/runs/{run:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def run_live(request: Request[Any, Any, Any], run: FromPath[UUID]) -> ServerSentEvent:
    """Send an event when the run changes, its progress and log included."""
    listening: Listening = request.app.state.listening

    async def look(connection: Connection) -> Any:
        return await look_at_run(connection, run)

    return streamed(listening.to(look, still_authorized(request)))


@post("/runs/{run:uuid}/cancel", opt=needs("operator"))
async def cancel_run(request: Request[Any, Any, Any], run: FromPath[UUID]) -> Response[Any]:
    """Cancel one run."""
    return await cancel(request, [run], to=f"/runs/{run}")


@post("/runs/{run:uuid}/again", opt=needs("operator"))
async def run_again(request: Request[Any, Any, Any], run: FromPath[UUID]) -> Response[Any]:
    """Run the manifest again with the same input, or the job if there is no manifest."""
    found = await _read(request, run)
    if found.status.manifest is not None:
        wish = TriggerRequest(manifest=found.status.manifest, input=found.input)
        triggered = await ask(request, subjects.TRIGGER_REQUEST, wish, TriggerAnswer)
        text, work = triggered.text or triggered.result, triggered.work
    else:
        order = EnqueueRequest(
            job=found.status.job,
            input=found.input,
            group=found.status.group,
            traceparent=traceparent(),
        )
        enqueued = await ask(request, subjects.ENQUEUE_REQUEST, order, EnqueueAnswer)
        text, work = f"Queued as work {enqueued.work}", enqueued.work
    return go_to(request, f"/runs/{run}" if work is None else f"/work/{work}", text=text)


async def _read(request: Request[Any, Any, Any], run: UUID) -> RunInFull:
    async with request.app.state.database.acquire() as connection:
        found = await read_run(connection, run)
    if found is None:
        raise NotFound(f"there is no run {run}: it may be older than the kept history")
    return found


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
