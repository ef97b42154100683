"""The outbox and its relay: the only way out for what a transaction decided.

A service writes its state, its history and an outbox row in one transaction. The relay
takes rows out, publishes them, and commits when the broker has acknowledged them. If it dies
before that, they are still there and are published again: the message id lets the broker drop
the copy within its window, and the receivers' unique keys make it harmless after that. Several
relays may run; each takes the rows that no other holds, so order between messages is not
promised.

What a process has just committed it hands to its own relay (`handover`), which publishes it at
once and then deletes its rows; in the outbox it only has to be found if that fails. The relay
looks for such rows at every safety poll, however busy its own process is.

On the way in, `rejected` keeps what could not be handled, with its bytes.
"""

from headway_relay.bundles import bundled
from headway_relay.handover import Handover, stamped
from headway_relay.outbox import TRACES_APART, Outbox, OutboxMessage
from headway_relay.rejected import Rejected, events_in
from headway_relay.relay import Relay

__all__ = [
    "TRACES_APART",
    "Handover",
    "Outbox",
    "OutboxMessage",
    "Rejected",
    "Relay",
    "bundled",
    "events_in",
    "stamped",
]
