"""Request/reply endpoints as NATS micro services, so that `nats micro` finds them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from importlib import metadata
from typing import TypeVar

import msgspec
from msgspec import Struct
from nats.errors import Error as NatsError
from nats.micro import add_service
from nats.micro.request import Request
from nats.micro.service import Service

from headway_jetstream_kit.connection import Broker

logger = logging.getLogger(__name__)

Endpoint = Callable[[bytes], Awaitable[bytes]]
Question = TypeVar("Question", bound=Struct)


# What kind of error an answer is, in the header where micro services say so.
INVALID = "400"
UNKNOWN = "404"
CONFLICT = "409"
FAILED = "500"
UNAVAILABLE = "503"


class BadRequest(Exception):
    """The request is at fault, whoever makes it and whenever; its text is the answer."""

    code = INVALID


class Unknown(BadRequest):
    """The request names something that there is not."""

    code = UNKNOWN


class Conflict(BadRequest):
    """The request is sound, and cannot be carried out as things are."""

    code = CONFLICT


class Unavailable(BadRequest):
    """What the answer depends on cannot be had now; the same request may be made again."""

    code = UNAVAILABLE


async def serve(
    broker: Broker, *, service: str, queue: str, endpoints: dict[str, Endpoint]
) -> Service:
    """Answer requests on the endpoints' subjects, shared with all others in the queue."""
    made = await add_service(
        broker.client,
        name=service,
        version=metadata.version("headway-jetstream-kit"),
        queue_group=queue,
    )
    for subject, endpoint in endpoints.items():
        name = subject.rpartition(".")[2]
        await made.add_endpoint(name=name, subject=subject, handler=_concurrently(endpoint))
    return made


def typed(
    question: type[Question],
    answer: Callable[[Question], Awaitable[Struct]],
    *,
    misfits: Callable[[bytes, type[Question]], list[str]] = lambda body, question: [],  # noqa: ARG005
) -> Endpoint:
    """An endpoint that reads and writes JSON; what cannot be read is the asker's fault.

    `misfits` tells all that is wrong with a body, where the first mistake is not enough.
    """

    async def endpoint(body: bytes) -> bytes:
        try:
            asked = msgspec.json.decode(body, type=question)
        except (msgspec.DecodeError, RecursionError) as error:
            told = misfits(body, question) or [f"not a {question.__name__}: {error}"]
            raise BadRequest("\n".join(told)) from error
        return msgspec.json.encode(await answer(asked))

    return endpoint


def _concurrently(endpoint: Endpoint) -> Callable[[Request], Awaitable[None]]:
    """A handler that does not let one slow request hold up the next."""
    running: set[asyncio.Task[None]] = set()

    async def handle(request: Request) -> None:
        task = asyncio.create_task(_answer(endpoint, request))
        running.add(task)
        task.add_done_callback(running.discard)

    return handle


async def _answer(endpoint: Endpoint, request: Request) -> None:
    try:
        try:
            await request.respond(await endpoint(request.data))
        except BadRequest as error:
            # In the body as well: a header has no room for several lines.
            await request.respond_error(error.code, str(error), data=str(error).encode())
        except NatsError:
            raise
        except Exception:
            logger.exception("endpoint %s", request.subject)
            await request.respond_error(FAILED, "the service failed; its log says why")
    except NatsError as error:
        logger.warning("answering on %s: %s", request.subject, error)
