"""Fetches, handles and acknowledges messages in batches.

A batch that fails is bisected to isolate the message that fails. That message is retried later and
rejected after several failures. After an outage of a dependency the whole batch is redelivered and
no failure is counted; the next batches are smaller, in case the statement timed out.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headway_clock import jitter
from headway_tracing.log import get_logger

from headway_jetstream_kit.connection import Broker
from headway_jetstream_kit.limited_log import LimitedLog
from headway_jetstream_kit.provisioning import take_over
from headway_jetstream_kit.pull import Message, Puller, ack, nak

log = get_logger(__name__)


class Unreadable(Exception):
    """A message is malformed, so retrying it is useless."""


@dataclass(eq=False)
class Intake:
    """Handles the messages of one durable consumer."""

    broker: Broker
    puller: Puller
    handle: Callable[[list[Message]], Awaitable[None]]
    reject: Callable[[Message, str], Awaitable[None]]
    # Errors of dependencies, not of a message.
    outages: tuple[type[Exception], ...]
    batch: int = 500
    tries: int = 5

    def __post_init__(self) -> None:
        self._portion = self.batch
        # Failures by sequence; the delivery count would include outages.
        self._failures: dict[int, int] = {}
        self._log = LimitedLog(log)

    async def take_over(self) -> None:
        """Let the unacknowledged messages of a dead process be redelivered at once."""
        await take_over(self.broker, self.puller.stream, self.puller.consumer)

    async def run_once(self) -> float | None:
        """Wait for messages and handle a batch; the pass needs no further rest."""
        try:
            messages = await self.puller.fetch(self._portion)
        except asyncio.CancelledError:
            # Otherwise messages of the open request would not be redelivered before the ack wait.
            await self.puller.close()
            raise
        if messages:
            try:
                await self._take(messages)
                self._portion = min(2 * self._portion, self.batch)
            except self.outages:
                self._portion = max(len(messages) // 2, 1)
                for message in messages:
                    await nak(self.broker, message, delay=0.5 + jitter())
                raise
        return 0.0

    async def _take(self, messages: list[Message]) -> None:
        try:
            await self.handle(messages)
        except self.outages:
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
            await ack(self.broker, messages)

    async def _set_aside(self, message: Message, error: Exception) -> None:
        tries = self._failures.get(message.sequence, 0) + 1
        if not isinstance(error, Unreadable) and tries < self.tries:
            self._failures[message.sequence] = tries
            self._log.warning(
                "message failed",
                consumer=self.puller.name,
                subject=message.subject,
                attempt=tries,
                max_attempts=self.tries,
                error=repr(error),
            )
            await nak(self.broker, message, delay=0.2 * 2**tries)
            return
        self._failures.pop(message.sequence, None)
        self._log.error(
            "message rejected", consumer=self.puller.name, subject=message.subject, error=error
        )
        await self.reject(message, f"{type(error).__name__}: {error}")
        await ack(self.broker, [message])
