"""The transactional outbox and its relay.

A service writes its state, its history and an outbox row in one transaction. The relay deletes
rows, publishes them, and commits when the broker has acknowledged them. If it dies before that, the
rows remain and are published again: the broker drops the duplicate by its message id within its
window, and after that the unique keys of the receivers make it harmless. Several relays may run;
each takes rows that no other relay has locked, so messages may be published in any order.

A process hands the messages that it just committed to its own relay (`Handover`), which publishes
them at once and soon deletes their rows, many at a time. At every safety poll the relay also reads
the outbox for rows whose handover failed. On the receiving side, `rejected` stores messages that
failed.
"""

from headway_relay.outbox import Handover as Handover
from headway_relay.outbox import Outbox as Outbox
from headway_relay.outbox import OutboxMessage as OutboxMessage
from headway_relay.outbox import bundled as bundled
from headway_relay.outbox import stamped as stamped
from headway_relay.rejected import Rejected as Rejected
from headway_relay.rejected import events_in as events_in
from headway_relay.relay import Relay as Relay
