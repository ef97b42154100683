"""Workers: their jobs, slots and runs."""

from datetime import timedelta
from typing import Any

from headway_clock import utc_now
from headway_contract import subjects
from headway_contract.operations import DrainAnswer, DrainRequest
from headway_errors import RequestFailed
from headway_postgres_kit import Connection
from litestar import Request, Response, get, post
from litestar.response import ServerSentEvent

from headway_console.access.guards import needs, still_authorized
from headway_console.pages.flash import back_of, go_to, refused
from headway_console.pages.form_fields import filters_of, text_of
from headway_console.pages.live import Listening, streamed
from headway_console.pages.shell import Page, show
from headway_console.reading.workers import look_at_workers, page_of_workers
from headway_console.services import ask

_MAX_AT_ONCE = 500
_SHOWN = 8


@get("/workers", opt=needs("viewer"))
async def workers(request: Request[Any, Any, Any]) -> Response[str]:
    """List workers by name."""
    cursor, now = text_of(request, "cursor"), utc_now()
    show_all = text_of(request, "which") == "all"
    alive = timedelta(seconds=request.app.state.settings.orphan_timeout_seconds)
    async with request.app.state.database.acquire() as connection:
        found = await page_of_workers(
            connection, heard_since=now - alive, alive_only=not show_all, cursor=cursor
        )
    return show(
        request,
        "workers.html",
        page=found,
        values=filters_of(request, "which"),
        show_all=show_all,
        cursor=cursor or "",
    )


@get("/workers/live", opt=needs("viewer"), sync_to_thread=False)
def workers_live(request: Request[Any, Any, Any]) -> ServerSentEvent:
    """Send an event when a worker sends a heartbeat."""
    listening: Listening = request.app.state.listening

    async def look(connection: Connection) -> Any:
        return await look_at_workers(connection)

    return streamed(listening.to(look, still_authorized(request)))


@post("/workers/drain", opt=needs("operator"))
async def drain(request: Request[Any, Any, Any]) -> Response[Any]:
    """Drain the checked workers."""
    back = await back_of(request, "/workers")
    names = [str(name) for name in (await request.form()).getall("id", [])]
    if not 0 < len(names) <= _MAX_AT_ONCE:
        text = f"Check some workers first, at most {_MAX_AT_ONCE}."
        return go_to(request, back, text=text, kind="bad")
    try:
        wish = DrainRequest(workers=names)
        results = (await ask(request, subjects.DRAIN_REQUEST, wish, DrainAnswer)).results
    except RequestFailed as error:
        return refused(request, back, error)
    drained = any(result.result == "asked" for result in results)
    text = "\n".join(result.text for result in results[:_SHOWN])
    left = len(results) - _SHOWN
    text += f"\n… and {left} more" if left > 0 else ""
    return go_to(request, back, text=text, kind="good" if drained else "bad")


PAGE = Page(title="Workers", path="/workers", key="w", handlers=(workers, workers_live, drain))
