"""The dispatcher's own fenced messages, which revoke leases and withdraw orders.

An unclaimed order is withdrawn under the fence of the claim, so a worker that claimed in time
continues.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

from headway_clock import new_id
from headway_contract import Event, encode, lifecycle, subjects
from headway_jetstream_kit import Broker, Refused, Stored
from headway_jetstream_kit.connection import ApiError
from headway_jetstream_kit.provisioning import STREAM_NOT_FOUND
from headway_jetstream_kit.publish import Answer, publish
from headway_postgres_kit import Database
from headway_tracing.log import get_logger

from headway_dispatcher import store
from headway_dispatcher.events import own_event
from headway_dispatcher.runs.leases import LeaseView, read_lease
from headway_dispatcher.runs.settle import EXPIRED
from headway_dispatcher.settings import DispatcherSettings
from headway_dispatcher.store import leases

log = get_logger(__name__)

# Delay before the next look at an order that a worker claimed while it was being withdrawn.
_RETRY_SECONDS = 0.5
_EXPIRY_BATCH = 1000


def lease_events(data: Sequence[lifecycle.LeaseEvent], lease: UUID, now: datetime) -> list[Event]:
    """Wrap the dispatcher's statements about a lease in events."""
    return [
        own_event(each, id=new_id(), subject=getattr(each, "run", lease), time=now) for each in data
    ]


async def publish_fenced(
    broker: Broker, lease: UUID, events: list[Event], *, expected: int
) -> Answer:
    """Publish events of a lease, if `expected` is still the sequence of its last message."""
    return await publish(
        broker,
        subjects.event(lease, subjects.DISPATCHER),
        encode(events),
        headers=subjects.fence(lease, expected),
    )


async def withdraw_order(broker: Broker, job: str, lease: UUID) -> None:
    """Remove an order from the stream, delivered or not, so that no worker claims it."""
    request = {"filter": subjects.order(job, lease)}
    try:
        await broker.api(f"STREAM.PURGE.{subjects.RUNS_STREAM}", request)
    except ApiError as error:
        if error.err_code != STREAM_NOT_FOUND:  # without a stream there is no order
            raise


async def withdraw_unclaimed(
    broker: Broker,
    database: Database,
    rows: Sequence[Any],
    reasons: Mapping[UUID, str],
    *,
    publisher: str,
    cause: Literal["cancelled", "expired"],
    now: datetime,
) -> float | None:
    """Cancel runs of unclaimed orders; returns a delay if a worker claimed one meanwhile.

    Each row names a run, its lease, and the lease's token, job, sequence and live runs. `reasons`
    is by run. Other runs of the same order are recalled, and their work is ordered again.
    """
    verb = "was cancelled" if cause == "cancelled" else "expired"
    recalled = lifecycle.Failure(
        kind=lifecycle.RECALLED,
        message=f"another run of the same order {verb} before a worker claimed it",
    )

    async def withdraw(order: Any) -> bool:
        lease: UUID = order["lease_id"]
        rights = {"lease": lease, "token": order["token"], "nonce": publisher}
        data: list[lifecycle.LeaseEvent] = [lifecycle.LeaseRevoked(**rights, reason=cause)]
        for run in order["live_runs"]:
            if run in reasons:
                data.append(lifecycle.RunCancelled(**rights, run=run, reason=reasons[run]))
            else:
                data.append(lifecycle.RunFailed(**rights, run=run, failure=recalled))
        events = lease_events(data, lease, now)
        answer = await publish_fenced(broker, lease, events, expected=order["sequence"])
        if isinstance(answer, Refused):
            # Refused messages may precede the claim.
            view = await read_lease(broker, database, lease)
            if isinstance(view, LeaseView) and view.is_free:
                answer = await publish_fenced(broker, lease, events, expected=view.sequence)
        if not isinstance(answer, Stored):
            log.debug("order not withdrawn", lease=lease, answer=answer)
            return False
        await withdraw_order(broker, order["job"], lease)
        return True

    orders = {row["lease_id"]: row for row in rows}
    withdrawn = await asyncio.gather(*map(withdraw, orders.values()))
    return None if all(withdrawn) else _RETRY_SECONDS


async def withdraw_expired(
    database: Database, broker: Broker, settings: DispatcherSettings, name: str
) -> float | None:
    """Withdraw every unclaimed order with a run that had to begin by now."""
    async with database.acquire() as connection:
        times = await store.read_times(connection, database)
        now = times.schedule
        silent_since = times.real - timedelta(seconds=settings.orphan_timeout_seconds)
        rows = await connection.fetch(leases["unclaimed_until"], _EXPIRY_BATCH, silent_since)
    late = [row for row in rows if row["start_by"] <= now]
    reasons = {row["run_id"]: EXPIRED for row in late}
    retry_after = await withdraw_unclaimed(
        broker, database, late, reasons, publisher=name, cause="expired", now=now
    )
    if retry_after is not None:
        return retry_after
    upcoming = [row["start_by"] for row in rows if row["start_by"] > now]
    if upcoming:
        return float((min(upcoming) - now).total_seconds())
    return 0.0 if len(rows) == _EXPIRY_BATCH else None
