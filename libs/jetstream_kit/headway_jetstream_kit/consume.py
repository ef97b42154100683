"""Taking messages in: fetch, handle in one go, acknowledge.

A batch that cannot be handled is cut in halves until the message at fault is alone; that
one is tried again later and, when it has failed often enough on a healthy system, put
aside with its bytes. An outage of what the handler stands on is nobody's fault: the whole
batch comes again and nothing is counted. But it comes in smaller portions, in case it was too
much for the time that a statement may take.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from headway_clock import jitter
from headway_tracing.log import get_logger

from headway_jetstream_kit.connection import Broker
from headway_jetstream_kit.limited_log import LimitedLog
from headway_jetstream_kit.provisioning import take_over
from headway_jetstream_kit.pull import Message, Puller, ack, nak

log = get_logger(__name__)

Handle = Callable[[list[Message]], Awaitable[None]]
Reject = Callable[[Message, str], Awaitable[None]]


class Unreadable(Exception):
    """A message that no number of tries will make readable."""


class Intake:
    """Takes the messages of one durable consumer in."""

    def __init__(
        self,
        broker: Broker,
        puller: Puller,
        *,
        handle: Handle,
        reject: Reject,
        outages: tuple[type[Exception], ...],
        batch: int = 500,
        tries: int = 5,
    ) -> None:
        self._broker = broker
        self._puller = puller
        self._handle = handle
        self._reject = reject
        self._outages = outages
        self._batch = batch
        self._portion = batch
        self._tries = tries
        # How often each message failed here; deliveries would count outages as tries, too.
        self._failures: dict[int, int] = {}
        self._log = LimitedLog(logging.getLogger(__name__))

    async def take_over(self) -> None:
        """Before the first batch: get at once what a process that is gone has left behind."""
        left = await take_over(self._broker, self._puller.stream, self._puller.consumer)
        if left:
            log.info(
                "redelivering unacknowledged messages", consumer=self._puller.name, messages=left
            )

    async def run_once(self) -> float | None:
        """Take one batch in; waits for messages itself, so it needs no rest."""
        try:
            messages = await self._puller.fetch(self._portion)
        except asyncio.CancelledError:
            # Its request is still open: what that brings would lie here until the ack wait is over.
            await self._puller.close()
            raise
        if messages:
            try:
                await self._take(messages)
                self._portion = min(2 * self._portion, self._batch)
            except self._outages:
                self._portion = max(len(messages) // 2, 1)
                for message in messages:
                    await nak(self._broker, message, delay=0.5 + jitter())
                raise
        return 0.0

    async def _take(self, messages: list[Message]) -> None:
        try:
            await self._handle(messages)
        except self._outages:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, find the message at fault
            if len(messages) > 1:
                middle = len(messages) // 2
                await self._take(messages[:middle])
                await self._take(messages[middle:])
            else:
                await self._set_aside(messages[0], error)
        else:
            for message in messages:
                self._failures.pop(message.sequence, None)
            # Those who were woken by it begin first: nobody waits for an acknowledgement.
            await asyncio.sleep(0)
            await ack(self._broker, messages)

    async def _set_aside(self, message: Message, error: Exception) -> None:
        tries = self._failures.get(message.sequence, 0) + 1
        if not isinstance(error, Unreadable) and tries < self._tries:
            self._failures[message.sequence] = tries
            self._log.warn(
                f"{self._puller.name}: message failed",
                f"{message.subject}: try {tries} of {self._tries}: {error!r}",
            )
            await nak(self._broker, message, delay=0.2 * 2**tries)
            return
        self._failures.pop(message.sequence, None)
        self._log.error(f"{self._puller.name}: message rejected", f"{message.subject}: {error}")
        await self._reject(message, f"{type(error).__name__}: {error}")
        await ack(self._broker, [message])
