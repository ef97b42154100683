"""The leases that ended last in a worker.

If the order of an ended lease is delivered again, the acknowledgement or the broker's storage was
lost. The worker then publishes the events again instead of running the bodies again.
"""

from collections import OrderedDict
from uuid import UUID

from headway_clock import jitter
from headway_jetstream_kit import Broker, Message
from headway_jetstream_kit.pull import ack, nak

from headway.worker.leases import Lease

# Bounds: how many leases with their events, how many bytes of events, and how many ids.
_MOST_LEASES = 1000
_MOST_BYTES = 16 * 1024**2
_MOST_NAMES = 10_000


class FinishedLeases:
    """The leases that ended last in this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # With the size that it had when it was added.
        self._leases: OrderedDict[UUID, tuple[Lease, int]] = OrderedDict()
        self._names: OrderedDict[UUID, None] = OrderedDict()
        self._bytes = 0

    def __contains__(self, lease: UUID) -> bool:
        return lease in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, lease: Lease) -> None:
        """Keep a lease, and forget the oldest if there are too many."""
        name = lease.order.lease
        self._names[name] = None
        if len(self._names) > _MOST_NAMES:
            self._names.popitem(last=False)
        lease.forget_runs()
        self._leases[name] = lease, lease.size
        self._bytes += lease.size
        while len(self._leases) > _MOST_LEASES or self._bytes > _MOST_BYTES:
            _, (_, size) = self._leases.popitem(last=False)
            self._bytes -= size

    async def handle_redelivery(self, message: Message, name: UUID) -> None:
        """Republish missing events of a lease whose order came again, then acknowledge it."""
        kept = self._leases.get(name)
        if kept is None or await kept[0].restore():
            await ack(self._broker, [message])
        else:
            await nak(self._broker, message, delay=1 + jitter())
