"""What a worker has said of leases that have ended, in case it was lost before anybody heard.

An order that comes again although its lease has ended here means that its acknowledgement was
lost, or the broker's storage, and all that was said of the lease with it. Saying it again is
better than running it again.
"""

import logging
from collections import OrderedDict
from typing import Any
from uuid import UUID

from headway_clock import jitter
from headway_jetstream_kit import Broker, Message
from headway_jetstream_kit.pull import ack, nak

from headway.worker.leases import Lease

logger = logging.getLogger(__name__)

# How many leases are kept with what was said of them, how large that may be, and how many by name.
_MOST_LEASES = 1000
_MOST_BYTES = 16 * 1024
_MOST_NAMES = 10_000


class Finished:
    """The last leases that ended in this process."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._leases: OrderedDict[UUID, Lease] = OrderedDict()
        self._names: OrderedDict[UUID, None] = OrderedDict()

    def __contains__(self, lease: UUID) -> bool:
        return lease in self._names

    def __len__(self) -> int:
        return len(self._names)

    def add(self, lease: Lease) -> None:
        """Keep a lease; the oldest is forgotten for it."""
        name = lease.order.lease
        self._names[name] = None
        _forget_oldest(self._names, _MOST_NAMES)
        if lease.size <= _MOST_BYTES:
            lease.forget_runs()
            self._leases[name] = lease
            _forget_oldest(self._leases, _MOST_LEASES)

    async def see_to(self, message: Message, name: UUID) -> None:
        """Answer an order that came again: say again what is missing, then acknowledge it."""
        lease = self._leases.get(name)
        if lease is None or await lease.tell_again():
            await ack(self._broker, [message])
        else:
            await nak(self._broker, message, delay=1 + jitter())


def _forget_oldest(kept: OrderedDict[UUID, Any], most: int) -> None:
    if len(kept) > most:
        kept.popitem(last=False)
