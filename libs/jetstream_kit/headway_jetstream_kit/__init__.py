"""JetStream over nats-py, without words of the domain.

A `Broker` is a connection that reconnects by itself, also if it looks alive but is dead. `client`
is nats-py's client with its known defects fixed. `publish` returns the result as a value: stored,
refused with a code, or unknown. A `Puller` fetches from a durable consumer and detects a missing
one; an `Intake` (`consume`) handles whole batches and isolates a message that fails. `ask` sends a
typed request and `endpoints` answers it. `provisioning` creates streams and consumers, and
`stream_watch` detects a replaced stream.
"""

from nats import errors
from nats.aio.msg import Msg as Msg

from headway_jetstream_kit.connection import Broker as Broker
from headway_jetstream_kit.connection import BrokerUnavailable as BrokerUnavailable
from headway_jetstream_kit.provisioning import Consumer as Consumer
from headway_jetstream_kit.provisioning import Stream as Stream
from headway_jetstream_kit.publish import NoAnswer as NoAnswer
from headway_jetstream_kit.publish import Refused as Refused
from headway_jetstream_kit.publish import Stored as Stored
from headway_jetstream_kit.pull import ConsumerMissing as ConsumerMissing
from headway_jetstream_kit.pull import Message as Message
from headway_jetstream_kit.pull import Puller as Puller

NatsError = errors.Error
