"""A canary and how far it is: dead letters of one failure, one, then ten, then all."""

from typing import Any
from uuid import UUID

from headway.control import NotThere
from headway_contract.http import InvalidRequest
from headway_postgres_kit import Connection
from litestar import Request, Response, get, post
from litestar.params import FromPath
from litestar.response import ServerSentEvent

from headway_console.access.guarding import needs, still_let_in
from headway_console.canaries import Canaries, Progress
from headway_console.pages.asked import field_of
from headway_console.pages.flash import go_to
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


@get("/dead-letters/canary/{canary:uuid}", opt=needs("viewer"), sync_to_thread=False)
def canary_page(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> Response[str]:
    """How far it is."""
    return show(request, "canary.html", canary=_read(request, canary))


@get("/dead-letters/canary/{canary:uuid}/live", opt=needs("viewer"), sync_to_thread=False)
def canary_live(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> ServerSentEvent:
    """Say when it has come further."""
    canaries: Canaries = request.app.state.canaries
    listening: Listening = request.app.state.listening

    async def look(_: Connection) -> Progress | None:
        return canaries.read(canary)

    return streamed(listening.to(look, still_let_in(request)))


@post("/dead-letters/canary/{canary:uuid}/stop", opt=needs("operator"), sync_to_thread=False)
def stop(request: Request[Any, Any, Any], canary: FromPath[UUID]) -> Response[Any]:
    """Go no further; what is under way goes on."""
    told = _read(request, canary)
    canaries: Canaries = request.app.state.canaries
    canaries.stop_one(told.id, actor=request.user.name)
    return go_to(request, f"/dead-letters/canary/{canary}", text="it goes no further")


def _read(request: Request[Any, Any, Any], canary: UUID) -> Progress:
    canaries: Canaries = request.app.state.canaries
    told = canaries.read(canary)
    if told is None:
        raise NotThere(
            f"this console knows no canary {canary}: a canary lives in the console that began it, "
            "and ends when that stops. What it had retried goes on, and what it had not is still "
            "among the dead letters: begin another"
        )
    return told


HANDLERS = (begin, canary_page, canary_live, stop)
