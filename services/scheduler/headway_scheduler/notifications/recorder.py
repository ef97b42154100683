"""Facts that make notifications: transactions note them, and write them just before the commit."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid5

from headway_contract.envelope import EventData
from headway_postgres_kit import Clock, Connection, json_array
from msgspec import Struct

from headway_scheduler.store import notifications

_NAMESPACE = UUID("6f1c6e0e-4a51-4a0e-9a35-0b4f0c7f2d11")


class Notification(Struct, frozen=True, kw_only=True):
    """A fact to notify about; a repeated fact has the same identity."""

    identity: str
    subject: str
    data: EventData


async def write_notifications(clock: Clock, connection: Connection, noted: Sequence[Any]) -> None:
    """Write the notifications among noted facts; a repeated one changes nothing."""
    found = [fact for fact in noted if isinstance(fact, Notification)]
    if found:
        await connection.execute(
            notifications["add"],
            [uuid5(_NAMESPACE, fact.identity) for fact in found],
            [fact.data.type for fact in found],
            [fact.subject for fact in found],
            json_array(fact.data for fact in found),
            await clock.now(connection),
        )
