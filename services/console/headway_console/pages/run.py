"""One run: what it did and said, beside the other attempts of its work."""

from typing import Any
from uuid import UUID

from headway.client.client import Client
from headway_errors import NotFound
from headway_postgres_kit import Connection
from litestar import Request, Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent

from headway_console.access.guards import needs, still_let_in
from headway_console.pages.cancel import cancel
from headway_console.pages.flash import go_to
from headway_console.pages.live import Listening, streamed
from headway_console.pages.shell import show
from headway_console.reading.run import RunInFull, look_at_run, read_run
from headway_console.settings import ConsoleSettings


@get("/runs/{run:uuid}", opt=needs("viewer"))
async def run_page(request: Request[Any, Any, Any], run: FromPath[UUID]) -> Response[str]:
    """Everything about one run."""
    found = await _read(request, run)
    return show(
        request,
        "run.html",
        run=found,
        told=found.status,
        under_way=found.status.finished_at is None,
        moves=found.status.finished_at is None or found.work_state != "settled",
        trace=trace_link(request.app.state.settings, found.trace_id),
    )


@get("/runs/{run:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def run_live(request: Request[Any, Any, Any], run: FromPath[UUID]) -> ServerSentEvent:
    """Say when something about it changes: its progress and its log, too."""
    listening: Listening = request.app.state.listening

    async def look(connection: Connection) -> Any:
        return await look_at_run(connection, run)

    return streamed(listening.to(look, still_let_in(request)))


@post("/runs/{run:uuid}/cancel", opt=needs("operator"))
async def cancel_run(request: Request[Any, Any, Any], run: FromPath[UUID]) -> Response[Any]:
    """End it early."""
    return await cancel(request, [run], to=f"/runs/{run}")


@post("/runs/{run:uuid}/again", opt=needs("operator"))
async def run_again(request: Request[Any, Any, Any], run: FromPath[UUID]) -> Response[Any]:
    """Run its manifest with the same input, or its job if it had no manifest."""
    found = await _read(request, run)
    client = Client(control=request.app.state.control, actor=request.user.name)
    if found.status.manifest is not None:
        triggered = await client.trigger(found.status.manifest, input=found.input)
        text, work = triggered.text or triggered.result, triggered.work
    else:
        enqueued = await client.enqueue(found.status.job, found.input, group=found.status.group)
        text, work = f"queued as work {enqueued.work}", enqueued.work
    return go_to(request, f"/runs/{run}" if work is None else f"/work/{work}", text=text)


async def _read(request: Request[Any, Any, Any], run: UUID) -> RunInFull:
    async with request.app.state.database.acquire() as connection:
        found = await read_run(connection, run)
    if found is None:
        raise NotFound(f"there is no run {run}: it may be older than the history that is kept")
    return found


def trace_link(settings: ConsoleSettings, trace_id: str | None) -> str | None:
    """Where Jaeger shows a trace; none without either."""
    if not settings.jaeger_url or not trace_id:
        return None
    return f"{settings.jaeger_url.rstrip('/')}/trace/{trace_id}"


HANDLERS = (run_page, run_live, cancel_run, run_again)
