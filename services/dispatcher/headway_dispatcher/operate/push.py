"""Telling a worker something ahead of its next heartbeat, whose answer says the same."""

import logging

import msgspec
from headway_contract import InvalidName, subjects
from headway_contract.control import CancelPush
from headway_jetstream_kit import Broker
from nats.errors import Error as NatsError

logger = logging.getLogger(__name__)


async def push(broker: Broker, worker: str, instructions: CancelPush) -> None:
    """Tell a worker; whether it hears is not known."""
    try:
        await broker.client.publish(subjects.cancel(worker), msgspec.json.encode(instructions))
    except (OSError, InvalidName, NatsError) as error:
        logger.debug("nothing pushed to %s: %s", worker, error)
