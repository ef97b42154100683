"""Asking services over NATS."""

from typing import Self

import msgspec
from headway_contract import subjects
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.endpoints import CONFLICT, INVALID, UNAVAILABLE, UNKNOWN
from msgspec import Struct
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from headway.client.control import (
    USUAL_SECONDS,
    Answer,
    Invalid,
    NotAnswered,
    NotThere,
    Refused,
    RequestFailed,
    TimedOut,
    TooLarge,
)

_FAILURES: dict[str | None, type[RequestFailed]] = {
    INVALID: Invalid,
    UNKNOWN: NotThere,
    CONFLICT: Refused,
    UNAVAILABLE: NotAnswered,
}


class NatsControl:
    """One connection to NATS. Made by `connect`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @classmethod
    async def connect(cls, url: str, *, credentials: str | None = None) -> Self:
        """Connect; raises `RequestFailed` if NATS cannot be reached."""
        try:
            broker = await Broker.connect(
                url, name="headway-client", credentials=credentials, one_try=True
            )
        except BrokerUnavailable as error:
            raise NotAnswered(f"NATS is not reachable: {error}") from error
        return cls(broker)

    async def close(self) -> None:
        """Close the connection."""
        await self._broker.close()

    async def ask(
        self,
        subject: str,
        question: Struct,
        answer: type[Answer],
        *,
        timeout: float = USUAL_SECONDS,
    ) -> Answer:
        """The answer to a question; raises `RequestFailed` if there is none."""
        body = msgspec.json.encode(question)
        most = self._broker.client.max_payload
        if len(body) > most:
            raise TooLarge(
                f"the request has {len(body)} bytes and NATS takes {most} at most: send fewer "
                "definitions at once, or raise max_payload in the configuration of NATS"
            )
        try:
            reply = await self._broker.client.request(subject, body, timeout=timeout)
        except NoRespondersError as error:
            raise NotAnswered(f"no service answers on {subject}: is it running?") from error
        except TimeoutError as error:
            raise TimedOut(
                f"{subject}: no answer within {timeout:g} s; look whether it was done before you "
                "ask again"
            ) from error
        except (OSError, NatsError) as error:
            raise NotAnswered(f"{subject}: {error or type(error).__name__}") from error
        headers = reply.headers or {}
        fault = headers.get(subjects.ERROR_HEADER)
        if fault:
            # A header has one line; a service with more to say says it in the body.
            text = reply.data.decode(errors="replace") or fault
            known = _FAILURES.get(headers.get(subjects.ERROR_CODE_HEADER))
            if known is not None:
                raise known(text)
            raise RequestFailed(f"{subject}: {text}")
        try:
            return msgspec.json.decode(reply.data, type=answer)
        except msgspec.DecodeError as error:
            raise RequestFailed(f"{subject}: the answer cannot be read: {error}") from error
