"""Mechanism over nats-py; knows no word of the domain.

- `connection`: a connection that comes back, or ends for good and says so.
- `client`: nats-py's client with its known holes closed.
- `watchdog`: makes a connection that looks alive and is dead anew, and gives it up at last.
- `publishing`: a publish whose answer is a value: stored, refused with a code, or unknown.
- `pulling`: a pull that tells an idle consumer from a missing one.
- `controlling`: request/reply endpoints as micro services.
- `consuming`: an intake that finds the one message at fault in a batch.
- `provisioning`: streams and durable consumers, made or compared.
"""

from headway_jetstream_kit.connection import Broker, BrokerUnavailable
from headway_jetstream_kit.provisioning import Consumer, Stream
from headway_jetstream_kit.publish import NoAnswer, Refused, Stored
from headway_jetstream_kit.pull import ConsumerMissing, Message, Puller

__all__ = [
    "Broker",
    "BrokerUnavailable",
    "Consumer",
    "ConsumerMissing",
    "Message",
    "NoAnswer",
    "Puller",
    "Refused",
    "Stored",
    "Stream",
]
