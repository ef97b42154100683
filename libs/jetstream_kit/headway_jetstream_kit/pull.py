"""A pull from a durable consumer.

Written on core NATS, because the client's own fetch takes a deleted consumer for an idle
one, and takes any message that carries a header called `Status` for a word of the server.
Here a message is what has an ack subject, and everything else is a status.
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

# After so many pulls that brought nothing, see whether there is anything to pull from.
LOOK_AFTER_EMPTY = 4


class ConsumerMissing(Exception):
    """The consumer or its stream does not exist (any more)."""


class Message(Struct, frozen=True):
    """One delivered message."""

    subject: str
    body: bytes
    headers: dict[str, str]
    sequence: int
    deliveries: int
    reply: str


def _never(_: Sequence[Message]) -> bool:
    return False


class Puller:
    """Pulls from one durable consumer, one request at a time.

    With `linger`, a fetch that has something waits up to so many seconds for what comes right
    behind it: two messages handled together cost less than one after the other. It does not
    wait for more than `complete` asks for.
    """

    def __init__(
        self,
        broker: Broker,
        stream: str,
        consumer: str,
        *,
        linger: float = 0.0,
        complete: Callable[[Sequence[Message]], bool] = _never,
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
        # What has come and was not looked at yet. The client's own way to wait for a message makes
        # a task for each of them.
        self._heard: deque[Msg] = deque()
        self._news = asyncio.Event()
        self._request = 0
        # The request that is still open at the server, and how many messages it may bring.
        self._open = ""
        self._left = 0
        self._empty = 0

    async def fetch(self, batch: int, *, wait: float = 5.0) -> list[Message]:
        """Up to `batch` messages; as soon as any are there, or none after `wait` seconds.

        What the request still brings after that comes with the next fetch, so whoever asks
        for more than one must go on fetching. A request that is still open is not made again:
        the server keeps every one of them, with heartbeats of its own, until it expires.
        """
        if self._left <= 0:
            request = {
                "batch": batch,
                "expires": int(wait * _NANOSECONDS),
                "idle_heartbeat": int(wait / 5 * _NANOSECONDS),
            }
            self._open = await self._publish(request)
            self._left = batch
        # A server that is silent for longer than two of its heartbeats has forgotten the
        # request: it restarted, or the consumer went away at a bad moment.
        messages = await self._receive(self._open, batch, silence=wait / 2, all_of_it=False)
        self._empty = 0 if messages else self._empty + 1
        if self._empty >= LOOK_AFTER_EMPTY:
            self._empty = 0
            await self._look()
        return messages

    async def _look(self) -> None:
        """Raise if what looks like an idle consumer is none at all."""
        try:
            found = await consumer_info(self._broker, *self.name.split("/"))
        except ApiError as error:
            raise BrokerUnavailable(f"{self.name}: {error}") from error
        if found is None:
            raise ConsumerMissing(f"{self.name} does not exist")

    async def take(self, batch: int) -> list[Message]:
        """Up to `batch` messages of those that are there now; nothing comes afterwards."""
        inbox = await self._publish({"batch": batch, "no_wait": True})
        return await self._receive(inbox, batch, silence=2.0, all_of_it=True)

    async def close(self) -> None:
        """Stop listening; what was delivered and not acknowledged comes again elsewhere."""
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            self._left = 0
            self._heard.clear()
            try:
                await subscription.unsubscribe()
            except NatsError:
                return  # the connection is gone, and the subscription with it

    async def _subscribe(self) -> None:
        if self._subscription is None:
            client = self._broker.client
            self._inbox = client.new_inbox()
            self._subscription = await client.subscribe(f"{self._inbox}.*", cb=self._note)

    async def _note(self, raw: Msg) -> None:
        self._heard.append(raw)
        self._news.set()

    async def _hear_next(self, patience: float) -> Msg:
        """What has come next, or a `TimeoutError`."""
        if not self._heard:
            self._news.clear()
            async with asyncio.timeout(patience):
                await self._news.wait()
        return self._heard.popleft()

    async def _publish(self, request: dict[str, int | bool]) -> str:
        """Ask for messages; returns the inbox to which the server tells the request's end."""
        try:
            await self._subscribe()
        except NatsError as error:
            raise BrokerUnavailable(f"pull from {self.name}: {error}") from error
        self._request += 1
        inbox = f"{self._inbox}.{self._request}"
        try:
            await self._broker.client.publish(self._next, msgspec.json.encode(request), reply=inbox)
        except NatsError as error:
            raise BrokerUnavailable(f"pull from {self.name}: {error}") from error
        return inbox

    async def _receive(
        self, inbox: str, batch: int, *, silence: float, all_of_it: bool
    ) -> list[Message]:
        messages: list[Message] = []
        lingers_until: float | None = None
        try:
            while len(messages) < batch:
                patience = silence
                if messages and not all_of_it and not self._heard:
                    lingers_until = lingers_until or monotonic() + self._linger
                    patience = lingers_until - monotonic()
                    if patience <= 0 or self._complete(messages):
                        break
                raw = await self._hear_next(patience)
                if raw.reply.startswith(_ACK_PREFIX):
                    messages.append(_message(raw))
                    self._left -= 0 if all_of_it else 1
                elif self._ends(raw, inbox):
                    break
        except ConsumerMissing:
            self._left = 0
            raise
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
        reply=raw.reply,
    )


async def ack(broker: Broker, messages: list[Message]) -> None:
    """Acknowledge; a lost acknowledgement means that the message comes again."""
    for message in messages:
        await _answer(broker, message, b"+ACK")


async def nak(broker: Broker, message: Message, *, delay: float) -> None:
    """Ask for redelivery after a delay; never at once, which would spin."""
    body = b"-NAK " + msgspec.json.encode({"delay": int(delay * _NANOSECONDS)})
    await _answer(broker, message, body)


async def _answer(broker: Broker, message: Message, body: bytes) -> None:
    try:
        await broker.client.publish(message.reply, body)
    except NatsError as error:
        raise BrokerUnavailable(f"acknowledging {message.subject}: {error}") from error
