"""Sends a request to a service over NATS and returns its typed answer."""

from typing import TypeVar

import headway_errors as errors
import msgspec
from msgspec import Struct
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError
from nats.micro.request import ERROR_CODE_HEADER, ERROR_HEADER

from headway_jetstream_kit.connection import Broker, reason

Answer = TypeVar("Answer", bound=Struct)


async def ask(
    broker: Broker, subject: str, question: Struct, answer: type[Answer], *, timeout: float
) -> Answer:
    """Send a request and return its answer; raise the `RequestFailed` that describes a failure."""
    body = msgspec.json.encode(question)
    limit = broker.client.max_payload
    if len(body) > limit:
        raise errors.TooLarge(
            f"the request has {len(body)} bytes, but NATS accepts {limit} at most: send fewer "
            "definitions at once, or raise max_payload in the configuration of NATS"
        )
    try:
        reply = await broker.client.request(subject, body, timeout=timeout)
    except NoRespondersError as error:
        raise errors.NoResponder(f"no service answers on {subject}: is it running?") from error
    except TimeoutError as error:
        raise errors.TimedOut(
            f"{subject}: no answer within {timeout:g} s; check whether the request was carried out "
            "before you repeat it"
        ) from error
    except (OSError, NatsError) as error:
        raise errors.Unavailable(f"{subject}: {reason(error)}") from error
    headers = reply.headers or {}
    if first_line := headers.get(ERROR_HEADER):
        text = reply.data.decode(errors="replace") or first_line
        kind = errors.kind_of_code(headers.get(ERROR_CODE_HEADER))
        raise errors.failure(
            kind, f"{subject}: {text}" if kind is errors.ErrorKind.FAILED else text
        )
    try:
        return msgspec.json.decode(reply.data, type=answer)
    except msgspec.DecodeError as error:
        raise errors.RequestFailed(f"{subject}: unreadable answer: {error}") from error
