"""Hands messages to the relay of the same process after their transaction committed.

The messages are also in the outbox, so a lost handover only delays them.
"""

from collections.abc import Sequence

from headway_service_kit.passes import Wakeup
from headway_tracing import traceparent
from msgspec import structs

from headway_relay.outbox import OutboxMessage

# The relay reads any more messages from the outbox, so that an outage does not fill the memory.
_MAX_MESSAGES = 1000


class Handover(Wakeup):
    """Wakes the relay and hands it messages that were just committed."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[OutboxMessage] = []

    def call(self, *, has_work: bool = True) -> None:
        """Wake the relay to read the outbox."""
        super().call(has_work=has_work)

    def hand(self, messages: Sequence[OutboxMessage]) -> None:
        """Wake the relay to publish these messages of the outbox."""
        if not messages:
            return
        if len(self._messages) + len(messages) > _MAX_MESSAGES:
            self.call()
            return
        self._messages += messages
        self.call(has_work=False)

    def take(self) -> tuple[list[OutboxMessage], bool]:
        """Return the messages handed over, and whether to read the outbox."""
        messages, self._messages = self._messages, []
        return messages, self.begin()


def stamped(messages: Sequence[OutboxMessage]) -> list[OutboxMessage]:
    """Return the messages with the current trace where they have none."""
    current = traceparent()
    return [
        message
        if current is None or message.traceparent
        else structs.replace(message, traceparent=current)
        for message in messages
    ]
