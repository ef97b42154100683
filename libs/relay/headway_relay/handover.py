"""Handing messages to the relay of the same process, once their transaction has committed.

They stand in the outbox all the same, so nothing depends on it: it saves the relay from reading
back what the process knows, and the message from waiting for that.
"""

from collections.abc import Sequence

from headway_service_kit.passes import Wakeup
from headway_tracing import traceparent
from msgspec import structs

from headway_relay.outbox import OutboxMessage

# More than that is left to be read, so that an outage of the broker fills no memory.
_MOST = 1000


class Handover(Wakeup):
    """Wakes the relay, and hands it what was committed just now."""

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[OutboxMessage] = []
        self._is_called = False

    def call(self) -> None:
        """Let the relay look into the outbox; returns at once."""
        self._is_called = True
        super().call()

    def hand(self, messages: Sequence[OutboxMessage]) -> None:
        """Let the relay publish these, which stand in the outbox; returns at once."""
        if not messages:
            return
        if len(self._messages) + len(messages) > _MOST:
            self.call()
            return
        self._messages += messages
        super().call()

    def take(self) -> tuple[list[OutboxMessage], bool]:
        """Return the messages handed over, and whether somebody asked to read the outbox."""
        messages, self._messages = self._messages, []
        is_called, self._is_called = self._is_called, False
        return messages, is_called


def stamped(messages: Sequence[OutboxMessage]) -> list[OutboxMessage]:
    """Messages that keep the trace in which they were written, for when they are handed over."""
    current = traceparent()
    if current is None:
        return list(messages)
    return [
        one if one.traceparent else structs.replace(one, traceparent=current) for one in messages
    ]
