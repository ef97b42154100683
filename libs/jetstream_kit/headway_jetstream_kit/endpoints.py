"""Request/reply endpoints as NATS micro services, so that `nats micro` finds them."""

import asyncio
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import TypeVar

import msgspec
from headway_errors import NATS_CODE, ErrorKind, Invalid, RequestFailed
from headway_tracing.log import get_logger
from msgspec import Struct
from nats.errors import Error as NatsError
from nats.micro import add_service
from nats.micro.request import Request
from nats.micro.service import Service

from headway_jetstream_kit.connection import Broker

log = get_logger(__name__)

Endpoint = Callable[[bytes], Awaitable[bytes]]
Question = TypeVar("Question", bound=Struct)


async def serve(
    broker: Broker, *, service: str, queue: str, endpoints: dict[str, Endpoint]
) -> Service:
    """Answer requests on the endpoints' subjects as a member of the queue group."""
    micro = await add_service(
        broker.client,
        name=service,
        version=metadata.version("headway"),
        queue_group=queue,
    )
    for subject, endpoint in endpoints.items():
        name = subject.rpartition(".")[2]
        await micro.add_endpoint(name=name, subject=subject, handler=_concurrently(endpoint))
    return micro


def typed(
    question: type[Question],
    answer: Callable[[Question], Awaitable[Struct]],
    *,
    misfits: Callable[[bytes, type[Question]], list[str]] | None = None,
) -> Endpoint:
    """Return an endpoint that reads and writes JSON; `misfits` lists the problems of a body."""

    async def endpoint(body: bytes) -> bytes:
        try:
            request = msgspec.json.decode(body, type=question)
        except (msgspec.DecodeError, RecursionError) as error:
            problems = misfits(body, question) if misfits else []
            text = "\n".join(problems) or f"not a {question.__name__}: {error}"
            raise Invalid(text) from error
        return msgspec.json.encode(await answer(request))

    return endpoint


def _concurrently(endpoint: Endpoint) -> Callable[[Request], Awaitable[None]]:
    """Return a handler that answers requests concurrently."""
    running: set[asyncio.Task[None]] = set()

    async def handle(request: Request) -> None:
        task = asyncio.create_task(_answer(endpoint, request))
        running.add(task)
        task.add_done_callback(running.discard)

    return handle


async def _answer(endpoint: Endpoint, request: Request) -> None:
    answer, code, text = b"", "", ""
    try:
        answer = await endpoint(request.data)
    except RequestFailed as error:
        code, text = NATS_CODE[error.kind], str(error)
    except Exception:
        log.exception("endpoint failed", subject=request.subject)
        code, text = NATS_CODE[ErrorKind.FAILED], "the service failed; its log says why"
    try:
        if code:
            # The header has only the first line of the text.
            await request.respond_error(code, text, data=text.encode())
        else:
            await request.respond(answer)
    except NatsError as error:
        log.warning("reply failed", subject=request.subject, error=error)
