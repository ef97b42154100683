"""Requests to the services, as the person who has signed in, and reads from the database."""

from collections.abc import Awaitable, Callable
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import litestar
from headway.client.http_control import PATIENT_SECONDS, USUAL_SECONDS, Answer
from headway_contract.fields import Request
from headway_jetstream_kit import ask as nats
from headway_postgres_kit import Connection
from msgspec import Struct, structs

HttpRequest: TypeAlias = litestar.Request[Any, Any, Any]
Found = TypeVar("Found")
Arguments = ParamSpec("Arguments")


async def ask(
    request: HttpRequest, subject: str, question: Struct, kind: type[Answer], *, slow: bool = False
) -> Answer:
    """Send a request to a service and return its answer; the actor is the person signed in.

    The answer to a change is worth a longer wait: after a timeout its outcome is unknown.
    """
    timeout = PATIENT_SECONDS if slow or isinstance(question, Request) else USUAL_SECONDS
    if isinstance(question, Request):
        question = structs.replace(question, actor=request.user.name)
    return await nats.ask(request.app.state.broker, subject, question, kind, timeout=timeout)


async def read(
    request: HttpRequest,
    function: Callable[Concatenate[Connection, Arguments], Awaitable[Found]],
    *arguments: Arguments.args,
    **options: Arguments.kwargs,
) -> Found:
    """Call a function of `reading` with a connection of its own."""
    async with request.app.state.database.acquire() as connection:
        return await function(connection, *arguments, **options)
