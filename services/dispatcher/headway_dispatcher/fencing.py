"""The dispatcher's own fenced words, with which it takes leases and orders back."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headway_clock import new_id
from headway_contract import Event, encode, event, subjects
from headway_contract.lifecycle import LeaseEvent
from headway_jetstream_kit import Broker
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import STREAM_NOT_FOUND
from headway_jetstream_kit.publishing import Answer, publish

from headway_dispatcher.store import SOURCE


def spoken(words: Sequence[LeaseEvent], lease: UUID, now: datetime) -> list[Event]:
    """Words in their envelopes."""
    return [
        event(word, id=new_id(), source=SOURCE, subject=getattr(word, "run", lease), time=now)
        for word in words
    ]


async def publish_fenced(
    broker: Broker, lease: UUID, events: list[Event], *, expected: int
) -> Answer:
    """Speak for a lease, provided that nobody else has spoken since `expected`."""
    return await publish(
        broker,
        subjects.event(lease, subjects.DISPATCHER),
        encode(events),
        headers=subjects.fence(lease, expected),
    )


async def withdraw_order(broker: Broker, job: str, lease: UUID) -> None:
    """Remove an order, delivered or not, so that nobody claims it after this."""
    request = {"filter": subjects.order(job, lease)}
    try:
        await broker.api(f"STREAM.PURGE.{subjects.RUNS_STREAM}", request)
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:  # without a stream there is no order
            raise
