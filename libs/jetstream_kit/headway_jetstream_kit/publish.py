"""Publishes to a stream and returns the result as a value: stored, refused or unknown."""

import msgspec
from msgspec import Struct
from nats.errors import Error as NatsError

from headway_jetstream_kit.connection import Broker


class Stored(Struct, frozen=True):
    """The broker stored the message now, or earlier (`duplicate`)."""

    sequence: int
    duplicate: bool = False


class Refused(Struct, frozen=True):
    """The broker rejected the message."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class NoAnswer(Struct, frozen=True):
    """No valid answer arrived: the message may be stored or not."""

    why: str


Answer = Stored | Refused | NoAnswer

TOO_LARGE = 413  # our own code: more than `max_payload`
TOO_LARGE_FOR_STREAM = 10054  # more than `max_msg_size` of the stream


class _Reply(Struct):
    seq: int = 0
    duplicate: bool = False
    error: Refused | None = None


_replies = msgspec.json.Decoder(_Reply)


async def publish(
    broker: Broker,
    subject: str,
    body: bytes,
    *,
    headers: dict[str, str] | None = None,
    timeout: float = 5,
) -> Answer:
    """Publish a message and return the result."""
    size = len(body)
    if headers:
        lines = [f"{key}: {value}\r\n" for key, value in headers.items()]
        size += len("NATS/1.0\r\n\r\n") + len("".join(lines).encode())
    if size > broker.client.max_payload:
        # The server would close the connection, and the client would not reconnect.
        return Refused(TOO_LARGE, 0, f"{size} bytes are more than {broker.client.max_payload}")
    try:
        reply = await broker.client.request(subject, body, timeout=timeout, headers=headers)
    except (OSError, TimeoutError, NatsError) as error:
        return NoAnswer(f"{type(error).__name__}: {error}")
    try:
        answer = _replies.decode(reply.data)
    except msgspec.DecodeError as error:
        return NoAnswer(f"the answer is not from a stream: {error}")
    if answer.error is not None:
        return answer.error
    if not answer.seq:
        # Not from a stream, or from a stream that lost the original of a duplicate.
        return NoAnswer("the answer has no sequence")
    return Stored(answer.seq, answer.duplicate)
