"""The page of a canary: dead letters of one failure, retried 1, then 10, then all."""

from typing import Any
from uuid import UUID

from headway_contract import subjects
from headway_contract.dead_letters import BeginCanaryRequest, CanaryStatus, StopCanaryRequest
from headway_errors import Invalid, NotFound
from headway_postgres_kit import Connection
from litestar import Request, Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent

from headway_console.access.guards import needs, still_authorized
from headway_console.pages.flash import go_to
from headway_console.pages.form_fields import field_of
from headway_console.pages.live import Listening, streamed
from headway_console.pages.shell import show
from headway_console.reading.canaries import read_canary
from headway_console.services import ask


@post("/dead-letters/canary", opt=needs("operator"))
async def begin(request: Request[Any, Any, Any]) -> Response[Any]:
    """Begin a canary for a failure, or open the one that runs."""
    fingerprint = await field_of(request, "of")
    if not fingerprint:
        raise Invalid("the form names no failure to retry")
    question = BeginCanaryRequest(fingerprint=fingerprint, actor=request.user.name)
    canary = await ask(request, subjects.BEGIN_CANARY_REQUEST, question, CanaryStatus)
    return go_to(request, f"/dead-letters/canary/{canary.id}")


@get("/dead-letters/canary/{canary:uuid}", opt=needs("viewer"))
async def canary_page(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> Response[str]:
    """Show the progress of a canary."""
    async with request.app.state.database.acquire() as connection:
        found = await read_canary(connection, canary)
    if found is None:
        raise NotFound(f"there is no canary {canary}")
    return show(request, "canary.html", canary=found)


@get("/dead-letters/canary/{canary:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def canary_live(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> ServerSentEvent:
    """Send an event when the canary changes."""
    listening: Listening = request.app.state.listening

    async def look(connection: Connection) -> CanaryStatus | None:
        return await read_canary(connection, canary)

    return streamed(listening.to(look, still_authorized(request)))


@post("/dead-letters/canary/{canary:uuid}/stop", opt=needs("operator"))
async def stop(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> Response[Any]:
    """Stop a canary; work under way continues."""
    question = StopCanaryRequest(canary=canary, actor=request.user.name)
    await ask(request, subjects.STOP_CANARY_REQUEST, question, CanaryStatus)
    return go_to(request, f"/dead-letters/canary/{canary}", text="Canary stopped")


HANDLERS = (begin, canary_page, canary_live, stop)
