"""JetStream over nats-py, without words of the domain.

A `Broker` is a connection that reconnects by itself, also if it looks alive but is dead. `client`
is nats-py's client with its known defects fixed. `publish` returns the result as a value: stored,
refused with a code, or unknown. A `Puller` fetches from a durable consumer and detects a missing
one; an `Intake` (`consume`) handles whole batches and isolates a message that fails. `ask` sends a
typed request and `endpoints` answers it. `provisioning` creates streams and consumers, and
`stream_watch` detects a replaced stream.
"""

from nats.aio.msg import Msg
from nats.errors import Error as NatsError

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
    "Msg",
    "NatsError",
    "NoAnswer",
    "Puller",
    "Refused",
    "Stored",
    "Stream",
]
