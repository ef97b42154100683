"""Requests to services over NATS."""

from typing import Self

from headway_errors import Unavailable
from headway_jetstream_kit import Broker, BrokerUnavailable
from headway_jetstream_kit.ask import ask
from msgspec import Struct

from headway.client.control import USUAL_SECONDS, Answer


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
            raise Unavailable(f"NATS is not reachable: {error}") from error
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
        """Return the answer; raise `RequestFailed` if there is none."""
        return await ask(self._broker, subject, question, answer, timeout=timeout)
