"""Requests that another service carries out."""

from typing import Any

from headway_contract.routes import FORWARDED, Route
from litestar import Request

from headway_console.api.endpoints import Endpoint
from headway_console.services import ask


def forwarded() -> list[Endpoint]:
    """Return an endpoint for every request that a service carries out."""
    return [Endpoint(route=route, answered=_forward(route)) for route in FORWARDED]


def _forward(route: Route) -> Any:
    async def answered(request: Request[Any, Any, Any], question: Any) -> Any:
        return await ask(request, route.subject, question, route.answer, timeout=route.seconds)

    return answered
