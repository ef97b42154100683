"""Workers: who they are, what they serve and what they are at."""

from datetime import timedelta
from typing import Any

from headway_clock import utc_now
from headway_postgres_kit import Connection
from litestar import Request, Response, get
from litestar.response import ServerSentEvent

from headway_console.access.guarding import needs, still_let_in
from headway_console.pages.asked import filters_of, text_of
from headway_console.pages.live import Listening, streamed
from headway_console.pages.shell import Page, show
from headway_console.reading.workers import look_at_workers, page_of_workers


@get("/workers", opt=needs("viewer"))
async def workers(request: Request[Any, Any, Any]) -> Response[str]:
    """Workers in the order of their names."""
    cursor, now = text_of(request, "cursor"), utc_now()
    everybody = text_of(request, "which") == "all"
    alive = timedelta(seconds=request.app.state.settings.orphan_timeout_seconds)
    async with request.app.state.database.acquire() as connection:
        found = await page_of_workers(
            connection, heard_since=now - alive, alive_only=not everybody, cursor=cursor
        )
    return show(
        request,
        "workers.html",
        page=found,
        values=filters_of(request, "which"),
        everybody=everybody,
        cursor=cursor or "",
    )


@get("/workers/live", opt=needs("viewer"), sync_to_thread=False)
def workers_live(request: Request[Any, Any, Any]) -> ServerSentEvent:
    """Say when a worker was heard."""
    listening: Listening = request.app.state.listening

    async def look(connection: Connection) -> Any:
        return await look_at_workers(connection)

    return streamed(listening.to(look, still_let_in(request)))


PAGE = Page(title="Workers", path="/workers", key="w", handlers=(workers, workers_live))
