"""A pull from a durable consumer.

Written on core NATS, because the client's own fetch takes a deleted consumer for an idle
one, and takes any message that carries a header called `Status` for a word of the server.
Here a message is what has an ack subject, and everything else is a status.
"""

import msgspec
from msgspec import Struct
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import Error as NatsError

from headway_jetstream_kit.connection import Broker, BrokerUnavailable

_ACK_PREFIX = "$JS.ACK."
_NANOSECONDS = 1_000_000_000


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


class Puller:
    """Pulls from one durable consumer, one request at a time."""

    def __init__(self, broker: Broker, stream: str, consumer: str) -> None:
        self._broker = broker
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self.name = f"{stream}/{consumer}"
        self._inbox = ""
        self._subscription: Subscription | None = None
        self._request = 0

    async def fetch(self, batch: int, *, wait: float = 5.0) -> list[Message]:
        """Up to `batch` messages; as soon as any are there, or none after `wait` seconds.

        What the request still brings after that comes with the next fetch, so whoever asks
        for more than one must go on fetching.
        """
        request = {
            "batch": batch,
            "expires": int(wait * _NANOSECONDS),
            "idle_heartbeat": int(wait / 5 * _NANOSECONDS),
        }
        # A server that is silent for longer than two of its heartbeats has forgotten the
        # request: it restarted, or the consumer went away at a bad moment.
        return await self._ask(request, batch, silence=wait / 2, all_of_it=False)

    async def take(self, batch: int) -> list[Message]:
        """Up to `batch` messages of those that are there now; nothing comes afterwards."""
        request = {"batch": batch, "no_wait": True}
        return await self._ask(request, batch, silence=2.0, all_of_it=True)

    async def close(self) -> None:
        """Stop listening; what was delivered and not acknowledged comes again elsewhere."""
        if self._subscription is not None:
            subscription, self._subscription = self._subscription, None
            try:
                await subscription.unsubscribe()
            except NatsError:
                return  # the connection is gone, and the subscription with it

    async def _subscribe(self) -> Subscription:
        if self._subscription is None:
            self._inbox = self._broker.client.new_inbox()
            self._subscription = await self._broker.client.subscribe(f"{self._inbox}.*")
        return self._subscription

    async def _ask(
        self, request: dict[str, int | bool], batch: int, *, silence: float, all_of_it: bool
    ) -> list[Message]:
        subscription = await self._subscribe()
        self._request += 1
        inbox = f"{self._inbox}.{self._request}"
        messages: list[Message] = []
        try:
            await self._broker.client.publish(self._next, msgspec.json.encode(request), reply=inbox)
            while len(messages) < batch:
                if messages and not all_of_it and subscription.pending_msgs == 0:
                    break
                raw = await subscription.next_msg(timeout=silence)
                if raw.reply.startswith(_ACK_PREFIX):
                    messages.append(_message(raw))
                elif self._ends(raw, inbox):
                    break
        except TimeoutError:
            return messages
        except NatsError as error:
            raise BrokerUnavailable(f"pull from {self.name}: {error}") from error
        return messages

    def _ends(self, raw: Msg, inbox: str) -> bool:
        headers = raw.headers or {}
        status, description = headers.get("Status", ""), headers.get("Description", "")
        if status == "503" or "Consumer Deleted" in description or "Stream Deleted" in description:
            raise ConsumerMissing(f"{self.name} does not exist")
        return raw.subject == inbox and status in ("404", "408", "409")


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
