"""Canaries: dead letters of one failure, retried 1, then 10, then all."""

from typing import Any
from uuid import UUID

from headway_contract.canaries import CanaryQuestion, CanaryStatus
from headway_contract.routes import LETTERS, Route
from headway_errors import NotFound
from litestar import Request

from headway_console.api.endpoints import Endpoint
from headway_console.reading.canaries import read_canary


async def find_canary(request: Request[Any, Any, Any], canary: UUID) -> CanaryStatus:
    """Return one canary; raises `NotFound`."""
    async with request.app.state.database.acquire() as connection:
        found = await read_canary(connection, canary)
    if found is None:
        raise NotFound(f"there is no canary {canary}")
    return found


async def _show(request: Request[Any, Any, Any], question: CanaryQuestion) -> CanaryStatus:
    return await find_canary(request, question.canary)


CANARIES: tuple[Endpoint, ...] = (
    Endpoint(
        route=Route(
            name="show_canary", method="GET", path="/dead-letters/canaries/{canary}",
            role="viewer", tag=LETTERS, question=CanaryQuestion, answer=CanaryStatus,
            summary="Show the progress of a canary.",
        ),
        answered=_show,
    ),
)  # fmt: skip
