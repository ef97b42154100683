"""Fetches, handles and acknowledges messages in batches.

A batch that fails is bisected to isolate the message that fails. That message is retried later and
rejected after several failures. After an outage of a dependency the whole batch is redelivered and
no failure is counted; the next batches are smaller, in case the statement timed out.
"""

import asyncio
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
    """A message is malformed, so retrying it is useless."""


class Intake:
    """Handles the messages of one durable consumer."""

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
        # Failures by sequence; the delivery count would include outages.
        self._failures: dict[int, int] = {}
        self._log = LimitedLog(log)

    async def take_over(self) -> None:
        """Let the unacknowledged messages of a dead process be redelivered at once."""
        await take_over(self._broker, self._puller.stream, self._puller.consumer)

    async def run_once(self) -> float | None:
        """Wait for messages and handle a batch; the pass needs no further rest."""
        try:
            messages = await self._puller.fetch(self._portion)
        except asyncio.CancelledError:
            # Otherwise messages of the open request would not be redelivered before the ack wait.
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
        except Exception as error:  # noqa: BLE001 - isolate the message that fails
            if len(messages) > 1:
                middle = len(messages) // 2
                await self._take(messages[:middle])
                await self._take(messages[middle:])
            else:
                await self._set_aside(messages[0], error)
        else:
            for message in messages:
                self._failures.pop(message.sequence, None)
            # First run the tasks that the messages woke: acknowledgements can wait.
            await asyncio.sleep(0)
            await ack(self._broker, messages)

    async def _set_aside(self, message: Message, error: Exception) -> None:
        tries = self._failures.get(message.sequence, 0) + 1
        if not isinstance(error, Unreadable) and tries < self._tries:
            self._failures[message.sequence] = tries
            self._log.warning(
                "message failed",
                consumer=self._puller.name,
                subject=message.subject,
                attempt=tries,
                max_attempts=self._tries,
                error=repr(error),
            )
            await nak(self._broker, message, delay=0.2 * 2**tries)
            return
        self._failures.pop(message.sequence, None)
        self._log.error(
            "message rejected", consumer=self._puller.name, subject=message.subject, error=error
        )
        await self._reject(message, f"{type(error).__name__}: {error}")
        await ack(self._broker, [message])
