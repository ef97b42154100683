"""Pulls messages from a durable consumer.

This uses core NATS, because the client's own fetch mistakes a deleted consumer for an idle one, and
any message with a header `Status` for a status of the server. Here only a message has an ack
subject, and everything else is a status.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from headway_clock import monotonic
from msgspec import Struct
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from headway_jetstream_kit.connection import ApiError, Broker, BrokerUnavailable
from headway_jetstream_kit.provisioning import consumer_info

_ACK_PREFIX = "$JS.ACK."
_NANOSECONDS = 1_000_000_000

# Check whether the consumer exists after this many empty pulls.
CHECK_AFTER_EMPTY = 4


class ConsumerMissing(Exception):
    """The consumer or its stream does not exist."""


class Message(Struct, frozen=True):
    """A delivered message."""

    subject: str
    body: bytes
    headers: dict[str, str]
    sequence: int
    deliveries: int
    # Messages that the consumer had left.
    pending: int
    reply: str


class Puller:
    """Pulls from one durable consumer, one request at a time.

    A fetch that has a message waits up to `linger` seconds for more, because a batch costs less
    than single messages, or until `complete` returns true.
    """

    def __init__(
        self,
        broker: Broker,
        stream: str,
        consumer: str,
        *,
        linger: float = 0.0,
        complete: Callable[[Sequence[Message]], bool] | None = None,
    ) -> None:
        self._broker = broker
        self._linger = linger
        self._complete = complete
        self.stream = stream
        self.consumer = consumer
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self.name = f"{stream}/{consumer}"
        self._inbox = ""
        self._subscription: Subscription | None = None
        # Received messages and statuses. The client's own queue would create a task for each wait.
        self._received: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        self._request = 0
        # The inbox of the open request, and how many messages may still arrive for it.
        self._open = ""
        self._left = 0
        self._empty = 0

    async def fetch(self, batch: int, *, wait: float = 5.0) -> list[Message]:
        """Return up to `batch` messages as soon as there are any, or none after `wait` seconds.

        Later messages of the request are returned by the next fetch, so a caller with `batch` above
        1 must continue fetching. An open request is not repeated, because the server would keep
        each one, with its own heartbeats, until it expires.
        """
        if self._left <= 0:
            request = {
                "batch": batch,
                "expires": int(wait * _NANOSECONDS),
                "idle_heartbeat": int(wait / 5 * _NANOSECONDS),
            }
            self._open = await self._publish(request)
            self._left = batch
        # A server that is silent for more than two heartbeats has lost the request, by a restart or
        # because the consumer was deleted.
        messages = await self._receive(self._open, batch, silence=wait / 2, until_end=False)
        self._empty = 0 if messages else self._empty + 1
        if self._empty >= CHECK_AFTER_EMPTY:
            self._empty = 0
            try:
                info = await consumer_info(self._broker, self.stream, self.consumer)
            except ApiError as error:
                raise BrokerUnavailable(f"{self.name}: {error}") from error
            if info is None:
                raise ConsumerMissing(f"{self.name} does not exist")
        return messages

    async def take(self, batch: int) -> list[Message]:
        """Return up to `batch` messages that are ready now; none come later."""
        inbox = await self._publish({"batch": batch, "no_wait": True})
        return await self._receive(inbox, batch, silence=2.0, until_end=True)

    async def close(self) -> None:
        """Unsubscribe; unacknowledged messages are redelivered."""
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            self._left = 0
            self._received.clear()
            try:
                await subscription.unsubscribe()
            except NatsError:
                return  # the connection is gone, and the subscription with it

    async def _on_message(self, raw: Msg) -> None:
        self._received.append(raw)
        self._arrived.set()

    async def _publish(self, request: dict[str, int | bool]) -> str:
        """Send a pull request; return the inbox that receives its final status."""
        client = self._broker.client
        try:
            if self._subscription is None:
                self._inbox = client.new_inbox()
                self._subscription = await client.subscribe(f"{self._inbox}.*", cb=self._on_message)
            self._request += 1
            inbox = f"{self._inbox}.{self._request}"
            await client.publish(self._next, msgspec.json.encode(request), reply=inbox)
        except NatsError as error:
            raise BrokerUnavailable(f"pull from {self.name}: {error}") from error
        return inbox

    async def _receive(
        self, inbox: str, batch: int, *, silence: float, until_end: bool
    ) -> list[Message]:
        messages: list[Message] = []
        lingers_until: float | None = None
        try:
            while len(messages) < batch:
                patience = silence
                if messages and not until_end and not self._received:
                    lingers_until = lingers_until or monotonic() + self._linger
                    patience = lingers_until - monotonic()
                    if patience <= 0 or (self._complete and self._complete(messages)):
                        break
                if not self._received:
                    self._arrived.clear()
                    async with asyncio.timeout(patience):
                        await self._arrived.wait()
                raw = self._received.popleft()
                if raw.reply.startswith(_ACK_PREFIX):
                    messages.append(_message(raw))
                    self._left -= 0 if until_end else 1
                elif self._ends(raw, inbox):
                    break
        except TimeoutError:
            if lingers_until is None:
                self._left = 0
                if self._broker.client.is_closed:
                    raise BrokerUnavailable(
                        f"pull from {self.name}: the connection is closed"
                    ) from None
        return messages

    def _ends(self, raw: Msg, inbox: str) -> bool:
        headers = raw.headers or {}
        status, description = headers.get("Status", ""), headers.get("Description", "")
        if status == "503" or "Consumer Deleted" in description or "Stream Deleted" in description:
            self._left = 0
            raise ConsumerMissing(f"{self.name} does not exist")
        if status not in ("404", "408", "409"):
            return False
        if raw.subject == self._open:
            self._left = 0
        return raw.subject == inbox


def _message(raw: Msg) -> Message:
    # $JS.ACK.<stream>.<consumer>.<deliveries>.<stream seq>.<consumer seq>.<time>.<pending>,
    # or the longer form with domain and account in front.
    tokens = raw.reply.split(".")
    at = 4 if len(tokens) == 9 else 6
    return Message(
        subject=raw.subject,
        body=raw.data,
        headers=dict(raw.headers or {}),
        deliveries=int(tokens[at]),
        sequence=int(tokens[at + 1]),
        pending=int(tokens[at + 4]),
        reply=raw.reply,
    )


async def ack(broker: Broker, messages: list[Message]) -> None:
    """Acknowledge messages; after a lost acknowledgement the message is redelivered."""
    for message in messages:
        await _answer(broker, message, b"+ACK")


async def nak(broker: Broker, message: Message, *, delay: float) -> None:
    """Request redelivery after a delay, which prevents a busy loop."""
    body = b"-NAK " + msgspec.json.encode({"delay": int(delay * _NANOSECONDS)})
    await _answer(broker, message, body)


async def _answer(broker: Broker, message: Message, body: bytes) -> None:
    try:
        await broker.client.publish(message.reply, body)
    except NatsError as error:
        raise BrokerUnavailable(f"acknowledging {message.subject}: {error}") from error
