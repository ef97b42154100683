"""A canary and how far it is: dead letters of one failure, one, then ten, then all."""

from typing import Any
from uuid import UUID

from headway_contract.http import InvalidRequest
from headway_postgres_kit import Connection
from litestar import Request, Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent

from headway_console.access.guards import needs, still_let_in
from headway_console.api.canaries import find_canary, stop_canary
from headway_console.canaries import Canaries, Progress
from headway_console.pages.flash import go_to
from headway_console.pages.form_fields import field_of
from headway_console.pages.live import Listening, streamed
from headway_console.pages.shell import show


@post("/dead-letters/canary", opt=needs("operator"))
async def begin(request: Request[Any, Any, Any]) -> Response[Any]:
    """Begin one for a failure, or go to the one that is at it."""
    fingerprint = await field_of(request, "of")
    if not fingerprint:
        raise InvalidRequest("a canary of which failure? The form names none")
    canaries: Canaries = request.app.state.canaries
    told = await canaries.begin(fingerprint, actor=request.user.name)
    return go_to(request, f"/dead-letters/canary/{told.id}")


@get("/dead-letters/canary/{canary:uuid}", opt=needs("viewer"))
async def canary_page(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> Response[str]:
    """How far it is."""
    return show(request, "canary.html", canary=await find_canary(request, canary))


@get("/dead-letters/canary/{canary:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def canary_live(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> ServerSentEvent:
    """Say when it has come further."""
    canaries: Canaries = request.app.state.canaries
    listening: Listening = request.app.state.listening

    async def look(_: Connection) -> Progress | None:
        return await canaries.find(canary)

    return streamed(listening.to(look, still_let_in(request)))


@post("/dead-letters/canary/{canary:uuid}/stop", opt=needs("operator"))
async def stop(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> Response[Any]:
    """Go no further; what is under way goes on."""
    await stop_canary(request, canary)
    return go_to(request, f"/dead-letters/canary/{canary}", text="it goes no further")


HANDLERS = (begin, canary_page, canary_live, stop)
