"""A publish to a stream, with the answer as a value.

Three things can happen, and the caller has to think of all three: the broker stored the
message, the broker refused it with a code, or nobody knows.
"""

from typing import Any

import msgspec
from msgspec import Struct
from nats.errors import Error as NatsError

from headway_jetstream_kit.connection import Broker


class Stored(Struct, frozen=True):
    """The broker has it, now or already before (`duplicate`)."""

    sequence: int
    duplicate: bool = False


class Refused(Struct, frozen=True):
    """The broker does not take it."""

    code: int
    err_code: int
    description: str


class NoAnswer(Struct, frozen=True):
    """Unknown: it may be stored or not."""

    why: str


Answer = Stored | Refused | NoAnswer

TOO_LARGE = 413  # our own code for what the server would cut the connection for
TOO_LARGE_FOR_STREAM = 10054  # more than the `max_msg_size` that somebody has given it


class _Reply(Struct):
    seq: int = 0
    duplicate: bool = False
    error: dict[str, Any] | None = None


_replies = msgspec.json.Decoder(_Reply)


async def publish(
    broker: Broker,
    subject: str,
    body: bytes,
    *,
    headers: dict[str, str] | None = None,
    timeout: float = 5,
) -> Answer:
    """Publish one message and tell what became of it."""
    size = len(body) + _header_size(headers)
    if size > broker.client.max_payload:
        # The server would cut the connection off, and the client would not come back.
        return Refused(TOO_LARGE, 0, f"{size} bytes are more than {broker.client.max_payload}")
    try:
        reply = await broker.client.request(subject, body, timeout=timeout, headers=headers)
    except (OSError, TimeoutError, NatsError) as error:
        return NoAnswer(f"{type(error).__name__}: {error}")
    try:
        answer = _replies.decode(reply.data)
    except msgspec.DecodeError as error:
        return NoAnswer(f"no answer of a stream: {error}")
    if answer.error is not None:
        return Refused(
            answer.error.get("code", 0),
            answer.error.get("err_code", 0),
            answer.error.get("description", ""),
        )
    if not answer.seq:
        # Somebody who is no stream has answered, or one that lost what it calls a duplicate.
        return NoAnswer("an answer without a sequence")
    return Stored(answer.seq, answer.duplicate)


def _header_size(headers: dict[str, str] | None) -> int:
    if not headers:
        return 0
    frame, line = len("NATS/1.0\r\n\r\n"), len(": \r\n")
    return frame + sum(len(key) + len(value.encode()) + line for key, value in headers.items())
