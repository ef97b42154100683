"""The dispatcher's own fenced words, with which it takes leases and orders back."""

import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from headway_clock import new_id
from headway_contract import Event, encode, event, subjects
from headway_contract.lifecycle import (
    RECALLED,
    Failure,
    LeaseEvent,
    LeaseRevoked,
    RunCancelled,
    RunFailed,
)
from headway_jetstream_kit import Broker, Refused, Stored
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import STREAM_NOT_FOUND
from headway_jetstream_kit.publish import Answer, publish
from headway_postgres_kit import Database

from headway_dispatcher.runs.leases import LeaseView, read_lease
from headway_dispatcher.store import SOURCE

logger = logging.getLogger(__name__)

# Why an order is taken back that nobody has claimed.
TakenBack = Literal["cancelled", "expired"]
_RECALLED: dict[TakenBack, Failure] = {
    "cancelled": Failure(
        kind=RECALLED,
        message="another run of the same order was cancelled before anybody claimed it",
    ),
    "expired": Failure(
        kind=RECALLED, message="another run of the same order expired before anybody claimed it"
    ),
}


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


async def take_back(
    broker: Broker,
    database: Database,
    order: Any,
    reasons: Mapping[UUID, str],
    *,
    speaker: str,
    why: TakenBack,
    now: datetime,
) -> bool:
    """End runs of an order before anybody claims it; false if somebody has.

    `order` names the lease, its token, job, sequence and live runs, and `reasons` the runs that
    are to end. Others of the same order are only recalled: their work waits again at once, and
    is ordered anew.
    """
    lease: UUID = order["lease_id"]
    rights = {"lease": lease, "token": order["token"], "nonce": speaker}
    words: list[LeaseEvent] = [LeaseRevoked(**rights, reason=why)]
    for run in order["live_runs"]:
        if run in reasons:
            words.append(RunCancelled(**rights, run=run, reason=reasons[run]))
        else:
            words.append(RunFailed(**rights, run=run, failure=_RECALLED[why]))
    events = spoken(words, lease, now)
    answer = await publish_fenced(broker, lease, events, expected=order["sequence"])
    if isinstance(answer, Refused):
        # Messages that do not count may lie before the claim.
        view = await read_lease(broker, database, lease)
        if isinstance(view, LeaseView) and view.is_free:
            answer = await publish_fenced(broker, lease, events, expected=view.sequence)
    if not isinstance(answer, Stored):
        logger.debug("the order of lease %s not taken back: %s", lease, answer)
        return False
    await withdraw_order(broker, order["job"], lease)
    return True
