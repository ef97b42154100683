"""Planned outages of services."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

ServiceName = Literal["scheduler", "dispatcher", "worker"]
SERVICES: tuple[ServiceName, ...] = get_args(ServiceName)


class Outage(Struct, frozen=True, kw_only=True):
    """A service is down from a time until just before another."""

    service: ServiceName
    begins_at: datetime
    ends_at: datetime


def down_at(outages: Sequence[Outage], at: datetime) -> set[ServiceName]:
    """Return the services that are down at a time."""
    return {outage.service for outage in outages if outage.begins_at <= at < outage.ends_at}


def next_change(outages: Sequence[Outage], after: datetime) -> datetime | None:
    """Return when a service next goes down or comes back."""
    times = {time for outage in outages for time in (outage.begins_at, outage.ends_at)}
    return min((time for time in times if time > after), default=None)
