"""Sends a request to a service over NATS and returns its typed answer."""

from typing import TypeVar

import msgspec
from headway_errors import (
    ErrorKind,
    NoResponder,
    RequestFailed,
    TimedOut,
    TooLarge,
    Unavailable,
    failure,
    kind_of_code,
)
from msgspec import Struct
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER

from headway_jetstream_kit.connection import Broker, reason

Answer = TypeVar("Answer", bound=Struct)


async def ask(
    broker: Broker, subject: str, question: Struct, answer: type[Answer], *, timeout: float
) -> Answer:
    """Send a request and return its answer; raise `RequestFailed` of the kind that fits."""
    body = msgspec.json.encode(question)
    limit = broker.client.max_payload
    if len(body) > limit:
        raise TooLarge(
            f"the request has {len(body)} bytes and NATS accepts {limit} at most: send fewer "
            "definitions at once, or raise max_payload in the configuration of NATS"
        )
    try:
        reply = await broker.client.request(subject, body, timeout=timeout)
    except NoRespondersError as error:
        raise NoResponder(f"no service answers on {subject}: is it running?") from error
    except TimeoutError as error:
        raise TimedOut(
            f"{subject}: no answer within {timeout:g} s; check whether it was done before you "
            "repeat the request"
        ) from error
    except (OSError, NatsError) as error:
        raise Unavailable(f"{subject}: {reason(error)}") from error
    _raise_error(subject, reply)
    try:
        return msgspec.json.decode(reply.data, type=answer)
    except msgspec.DecodeError as error:
        raise RequestFailed(f"{subject}: unreadable answer: {error}") from error


def _raise_error(subject: str, reply: Msg) -> None:
    """Raise the error that a reply reports in its headers."""
    headers = reply.headers or {}
    fault = headers.get(ERROR_HEADER)
    if not fault:
        return
    # A header has one line; the body has all of them.
    text = reply.data.decode(errors="replace") or fault
    kind = kind_of_code(headers.get(ERROR_CODE_HEADER))
    raise failure(kind, f"{subject}: {text}" if kind is ErrorKind.FAILED else text)
