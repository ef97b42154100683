"""Requests that another service answers: handed on over NATS, and the answer handed back."""

from typing import Any

from headway.client.control import Control
from headway_contract import http
from headway_contract.routes import FORWARDED, Route
from litestar import Request

from headway_console.api.endpoints import Endpoint


def forwarded() -> list[Endpoint]:
    """An entry for every request that a person may make of a service."""
    return [Endpoint(route=route, answered=_hand_on(route)) for route in FORWARDED]


def _hand_on(route: Route) -> Any:
    async def ask(request: Request[Any, Any, Any], question: Any) -> Any:
        control: Control = request.app.state.control
        answer = await control.ask(route.subject, question, route.answer, timeout=route.seconds)
        return http.page_of(route, answer) if route.items else answer

    return ask
