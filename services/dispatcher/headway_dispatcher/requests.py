"""Endpoints for people and programs: all that is wrong with a request is told at once."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from headway_contract.fitting import misfits_of
from headway_jetstream_kit import endpoints
from headway_jetstream_kit.endpoints import Endpoint
from msgspec import Struct

Question = TypeVar("Question", bound=Struct)


def typed(question: type[Question], answer: Callable[[Question], Awaitable[Struct]]) -> Endpoint:
    """An endpoint that reads and writes JSON."""
    return endpoints.typed(question, answer, misfits=misfits_of)
