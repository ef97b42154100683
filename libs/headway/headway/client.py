"""A client for whoever wants to look at Headway from a program.

    async with Client("nats://127.0.0.1:4222") as headway:
        for manifest in await headway.manifests():
            print(manifest.external_id, manifest.next_due_at)

It asks the services over NATS, and so needs no access to the database.
"""

from types import TracebackType
from typing import Self, TypeVar

import msgspec
from headway_contract import subjects
from headway_contract.scheduling import ManifestsAnswer, ManifestsQuestion, ManifestStatus
from headway_jetstream_kit import Broker, BrokerUnavailable
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

Answer = TypeVar("Answer", bound=msgspec.Struct)

_ERROR_HEADER = "Nats-Service-Error"


class RequestFailed(Exception):
    """A service refused a request, or none answered."""


class Client:
    """One connection to Headway's services."""

    def __init__(self, nats_url: str, *, credentials: str | None = None) -> None:
        self._url = nats_url
        self._credentials = credentials
        self._broker: Broker | None = None

    async def __aenter__(self) -> Self:
        """Connect; raises `RequestFailed` if NATS cannot be reached."""
        try:
            self._broker = await Broker.connect(
                self._url, name="headway-client", credentials=self._credentials
            )
        except BrokerUnavailable as error:
            raise RequestFailed(f"NATS is not reachable: {error}") from error
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connection."""
        if self._broker is not None:
            await self._broker.close()

    async def manifests(self) -> list[ManifestStatus]:
        """Every manifest and how it stands, in the order of their ids."""
        found: list[ManifestStatus] = []
        while True:
            question = ManifestsQuestion(after=found[-1].external_id if found else "")
            page = await self._ask(subjects.MANIFESTS_QUESTION, question, ManifestsAnswer)
            found += page.manifests
            if not page.more:
                return found

    async def _ask(self, subject: str, question: msgspec.Struct, answer: type[Answer]) -> Answer:
        if self._broker is None:
            raise RequestFailed("the client is not connected: use it as 'async with Client(...)'")
        try:
            reply = await self._broker.client.request(
                subject, msgspec.json.encode(question), timeout=5
            )
        except NoRespondersError as error:
            raise RequestFailed(f"no service answers on {subject}: is it running?") from error
        except (OSError, TimeoutError, NatsError) as error:
            raise RequestFailed(f"{subject}: {error or type(error).__name__}") from error
        fault = (reply.headers or {}).get(_ERROR_HEADER)
        if fault:
            raise RequestFailed(f"{subject}: {fault}")
        return msgspec.json.decode(reply.data, type=answer)
