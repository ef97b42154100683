"""What a worker has said of leases that have ended, in case it was lost before anybody heard.

An order that comes again although its lease has ended here means that its acknowledgement was
lost, or the broker's storage, and all that was said of the lease with it. Saying it again is
better than running it again.
"""

import logging
from collections import OrderedDict
from uuid import UUID

from headway_clock import jitter
from headway_jetstream_kit import Broker, Message
from headway_jetstream_kit.pulling import ack, nak

from headway.worker.leases import Lease

logger = logging.getLogger(__name__)

# How many leases are kept, and how large what was said of each may be.
_MOST_LEASES = 1000
_MOST_BYTES = 16 * 1024


class Finished:
    """The last leases that ended in this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._leases: OrderedDict[UUID, Lease] = OrderedDict()

    def __contains__(self, lease: UUID) -> bool:
        return lease in self._leases

    def __len__(self) -> int:
        return len(self._leases)

    def add(self, lease: Lease) -> None:
        """Keep a lease; the oldest is forgotten for it."""
        if lease.size <= _MOST_BYTES:
            self._leases[lease.order.lease] = lease
        if len(self._leases) > _MOST_LEASES:
            self._leases.popitem(last=False)

    async def see_to(self, message: Message, lease: UUID) -> None:
        """Answer an order that came again: say again what is missing, then acknowledge it."""
        if await self._leases[lease].tell_again():
            await ack(self._broker, [message])
        else:
            await nak(self._broker, message, delay=1 + jitter())
