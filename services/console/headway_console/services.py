"""Requests to the scheduler and the dispatcher, as the person who has signed in."""

from typing import Any, TypeAlias, TypeVar

from headway.client.control import USUAL_SECONDS
from headway_jetstream_kit import Broker
from headway_jetstream_kit import ask as nats
from litestar import Request
from msgspec import Struct, structs

HttpRequest: TypeAlias = Request[Any, Any, Any]
Answer = TypeVar("Answer", bound=Struct)


async def ask(
    request: HttpRequest,
    subject: str,
    question: Struct,
    answer: type[Answer],
    *,
    timeout: float = USUAL_SECONDS,
) -> Answer:
    """Send a request to a service and return its answer; the actor is the person signed in."""
    broker: Broker = request.app.state.broker
    if "actor" in question.__struct_fields__:
        question = structs.replace(question, actor=request.user.name)
    return await nats.ask(broker, subject, question, answer, timeout=timeout)
