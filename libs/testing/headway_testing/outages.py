"""Outages that a test has planned: which service is down, from when until when."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

ServiceName = Literal["scheduler", "dispatcher", "worker"]
SERVICES: tuple[ServiceName, ...] = get_args(ServiceName)


class Outage(Struct, frozen=True, kw_only=True):
    """One service is down for a while; it is up again at the end itself."""

    service: ServiceName
    begins_at: datetime
    ends_at: datetime


def down_at(outages: Sequence[Outage], at: datetime) -> set[ServiceName]:
    """Who is down at a time."""
    return {one.service for one in outages if one.begins_at <= at < one.ends_at}


def next_change(outages: Sequence[Outage], after: datetime) -> datetime | None:
    """When a service next goes down or comes back."""
    changes = {time for one in outages for time in (one.begins_at, one.ends_at) if time > after}
    return min(changes, default=None)
